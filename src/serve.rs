//! `baton serve` and `baton up`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use baton_analyzer::report::text;
use baton_analyzer::wire::{Endpoint, Error, Settings};
use baton_record::config::Config;
use baton_record::objects::is_url;
use baton_record::serve::{Secret, Serve, User};
use tokio::runtime::Runtime;

use crate::cli::{Serve as Args, Up};
use crate::collect::{self, Ends};
use crate::{Exit, Usage, source};

/// Answers SQL until it is told to end.
pub(crate) fn run(args: &Args, config: Config) -> Result<Exit> {
    let settings = settings(&args.store, args.listen, &config.serve)?;
    let statements = runtime()?;
    let done = source::block_on(async {
        let mut ends = Ends::new()?;
        let endpoint = start(&statements, settings, config).await?;
        ends.wait().await;
        drop(endpoint);
        Ok(Exit::Done)
    });
    statements.shutdown_background();
    done
}

/// Receives OTLP and answers SQL, until it is told to end.
pub(crate) fn up(args: &Up, config: Config) -> Result<Exit> {
    let collecting = collect::settings(&args.collect, &config.collect)?;
    let serving = settings(&args.collect.store, args.sql, &config.serve)?;
    let statements = runtime()?;
    let done = source::block_on(async {
        let mut ends = Ends::new()?;
        let collector = collect::start(collecting, config.clone()).await?;
        // There may be nothing yet.
        let spans = serving.store.join("spans");
        if !serving.store.to_str().is_some_and(is_url) {
            std::fs::create_dir_all(&spans).with_context(|| spans.display().to_string())?;
        }
        let endpoint = match start(&statements, serving, config).await {
            Ok(endpoint) => endpoint,
            Err(e) => {
                collect::stop(collector).await;
                return Err(e);
            }
        };
        ends.wait().await;
        eprintln!("ending: what is under way is finished");
        drop(endpoint);
        collect::stop(collector).await;
        Ok(Exit::Done)
    });
    statements.shutdown_background();
    done
}

/// Statements have threads of their own, more than there are cores: one that computes for long leaves room for the others, and for
/// the collector, as the system shares out the cores.
fn runtime() -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Ok(tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores * 2)
        .thread_name("sql")
        .enable_all()
        .build()?)
}

async fn start(statements: &Runtime, settings: Settings, config: Config) -> Result<Endpoint> {
    let log = Arc::new(|line: &str| eprintln!("{}", text::plain(line)));
    let store = settings.store.display().to_string();
    let open = settings.users.is_empty();
    let started = statements.spawn(Endpoint::start(settings, config, log)).await?;
    let endpoint = started.map_err(|e| match e {
        Error::Setting(what) => anyhow::Error::new(Usage(what)),
        e => e.into(),
    })?;
    eprintln!(
        "listening: SQL (Postgres protocol) on {}, {}; store: {}",
        endpoint.listen,
        if open { "without passwords" } else { "with passwords" },
        text::plain(&store)
    );
    Ok(endpoint)
}

fn settings(store: &Path, listen: Option<SocketAddr>, file: &Serve) -> Result<Settings> {
    let d = Settings::default();
    Ok(Settings {
        store: store.to_owned(),
        listen: listen.or(file.listen).unwrap_or(d.listen),
        users: file.users.iter().map(password).collect::<Result<_>>()?,
        tls: file.tls.clone(),
        insecure: file.insecure,
        statement_timeout: file.statement_timeout.unwrap_or(d.statement_timeout),
        memory_limit: file.memory_limit.map_or(d.memory_limit, |n| n as usize),
        connections: file.connections.map_or(d.connections, |n| n as usize),
        statements: file.statements.map_or(d.statements, |n| n as usize),
        refresh: file.refresh.unwrap_or(d.refresh),
    })
}

/// A user with the password.
fn password(user: &User) -> Result<(String, String)> {
    let password = match &user.password {
        Secret::File(path) => std::fs::read_to_string(path)
            .map_err(|e| Usage(format!("serve.users: password_file: {}: {e}", path.display())))?,
        Secret::Env(name) => std::env::var(name).map_err(|_| {
            Usage(format!("serve.users: password_env: the environment has no variable `{name}`"))
        })?,
    };
    let password = password.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        return Err(Usage(format!("serve.users: the password of `{}` is empty", user.name)).into());
    }
    Ok((user.name.clone(), password))
}
