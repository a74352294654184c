//! `baton collect`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use baton_analyzer::report::text;
use baton_collector::live::{Collector, Settings};
use baton_record::config::{Collect, Config};

use crate::cli::Collect as Args;
use crate::{Exit, Usage, source};

/// How long the journal may take to become Parquet at the end.
const DRAIN: Duration = Duration::from_secs(6);

/// Receives until it is told to end.
pub(crate) fn run(args: &Args, config: Config) -> Result<Exit> {
    let settings = settings(args, &config.collect)?;
    source::block_on(async move {
        let mut ends = Ends::new()?;
        let collector = start(settings, config).await?;
        ends.wait().await;
        eprintln!("ending: what is under way is finished");
        stop(collector).await;
        Ok(Exit::Done)
    })
}

/// Starts a collector and says where it listens.
pub(crate) async fn start(settings: Settings, config: Config) -> Result<Collector> {
    let log = Arc::new(|line: &str| eprintln!("{}", text::plain(line)));
    let store = settings.store.display().to_string();
    let collector = Collector::start(settings, config, log).await.map_err(|e| match e {
        baton_collector::live::Error::Setting(what) => anyhow::Error::new(Usage(what)),
        e => e.into(),
    })?;
    eprintln!(
        "listening: OTLP/gRPC on {}, OTLP/HTTP on {}; store: {}",
        collector.grpc,
        collector.http,
        text::plain(&store)
    );
    Ok(collector)
}

/// Ends a collector in order.
pub(crate) async fn stop(collector: Collector) {
    if !collector.stop(DRAIN).await {
        eprintln!("part of the journal is not in the store yet; the next start goes on with it");
    }
}

pub(crate) fn settings(args: &Args, file: &Collect) -> Result<Settings> {
    let d = Settings::default();
    let token = match (&file.token_file, &file.token_env) {
        (Some(path), _) => Some(
            std::fs::read_to_string(path)
                .map_err(|e| Usage(format!("collect.token_file: {}: {e}", path.display())))?,
        ),
        (None, Some(name)) => Some(
            std::env::var(name)
                .map_err(|_| Usage(format!("collect.token_env: the environment has no variable `{name}`")))?,
        ),
        (None, None) => None,
    };
    let token = token.map(|t| t.trim().to_owned());
    if token.as_deref() == Some("") {
        return Err(Usage("collect: the token is empty".to_owned()).into());
    }
    Ok(Settings {
        store: args.store.clone(),
        journal: args.journal.clone().or_else(|| file.journal.clone()),
        http: args.http.or(file.http).unwrap_or(d.http),
        grpc: args.grpc.or(file.grpc).unwrap_or(d.grpc),
        sync: file.synced,
        visible_after: file.visible_after.unwrap_or(d.visible_after),
        memory_limit: file.memory_limit.map_or(d.memory_limit, |n| n as usize),
        max_body: file.max_body.map_or(d.max_body, |n| n as usize),
        journal_limit: file.journal_limit.unwrap_or(d.journal_limit),
        threads: d.threads,
        tls: file.tls.clone(),
        token,
        insecure: file.insecure,
        compact: file.compact,
        keep: file.keep,
    })
}

/// The signals that end the program.
pub(crate) struct Ends {
    #[cfg(unix)]
    term: tokio::signal::unix::Signal,
}

impl Ends {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            term: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
                .context("signal handler")?,
        })
    }

    pub(crate) async fn wait(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.term.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
