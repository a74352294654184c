//! `baton cluster`.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use baton_analyzer::cluster;
use baton_record::collect::size;

use crate::cli::{Cluster, Executor, Scheduler};
use crate::{Exit, Usage, source, terminal};

/// Runs a process of a cluster until it is told to end.
pub(crate) fn run(args: &Cluster) -> Result<Exit> {
    // What the engine says of its work goes where ours goes.
    let level = if terminal::is_verbose() { log::LevelFilter::Info } else { log::LevelFilter::Warn };
    log::set_logger(&Lines).map(|()| log::set_max_level(level)).ok();
    match args {
        Cluster::Scheduler(a) => scheduler(a),
        Cluster::Executor(a) => executor(a),
    }
}

fn scheduler(args: &Scheduler) -> Result<Exit> {
    allowed(args.listen, args.insecure)?;
    let external_host = args.external_host.clone().unwrap_or_else(|| args.listen.ip().to_string());
    let scheduler = cluster::Scheduler { listen: args.listen, external_host };
    eprintln!("listening: scheduler on {}", args.listen);
    source::block_on(async {
        let mut ends = crate::collect::Ends::new()?;
        tokio::select! {
            done = scheduler.run() => done?,
            () = ends.wait() => {}
        }
        Ok(Exit::Done)
    })
}

fn executor(args: &Executor) -> Result<Exit> {
    allowed(args.listen, args.insecure)?;
    let scheduler = args
        .scheduler
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)))
        .ok_or_else(|| Usage(format!("--scheduler: `{}` is no host and port", args.scheduler)))?;
    let memory = size(&args.memory)
        .ok_or_else(|| Usage(format!("--memory: `{}` is no size, as 2GiB is one", args.memory)))?;
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let temporary = tempfile::Builder::new().prefix("baton-executor-").tempdir()?;
    let scratch = args.scratch.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let executor = cluster::Executor {
        scheduler,
        listen: args.listen,
        external_host: args.external_host.clone().unwrap_or_else(|| args.listen.ip().to_string()),
        slots: args.slots.map_or(cores, usize::from),
        memory,
        scratch,
    };
    eprintln!(
        "listening: executor on {}, {} slots; scheduler: {}",
        args.listen, executor.slots, args.scheduler
    );
    source::block_on(async {
        executor.run().await?;
        Ok(Exit::Done)
    })
}

/// Whoever reaches a port of the cluster can give it work.
fn allowed(listen: SocketAddr, insecure: bool) -> Result<()> {
    if listen.ip().is_loopback() {
        return Ok(());
    }
    let what = format!(
        "{listen} is reached from other machines, and a cluster knows neither passwords nor encryption"
    );
    if !insecure {
        return Err(Usage(format!(
            "{what}: see to it that nothing else reaches it, and allow it with --insecure"
        ))
        .into());
    }
    terminal::note(&format!("warning: {what}"));
    Ok(())
}

/// Lines on standard error.
struct Lines;

impl log::Log for Lines {
    /// The level is the logger's for all.
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let text = baton_analyzer::report::text::plain(&record.args().to_string());
        eprintln!("{}: {text}", record.level().as_str().to_lowercase());
    }

    fn flush(&self) {}
}
