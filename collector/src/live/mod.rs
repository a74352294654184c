//! The live collector: receives OTLP, acknowledges what is in the journal, and turns the journal into Parquet.
//!
//! ```text
//! listeners (HTTP, gRPC, TLS) -> requests within limits -> reading threads: unpack, decode, dialect, encode
//!   -> journal: append, sync, answer -> closed segments -> Parquet in the store
//! ```

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton_record::config::{CollectTls, Config};
use baton_record::objects::{self, Objects, Patience};
use baton_record::prints::PrintKey;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub mod crew;
pub mod http;
pub mod ingest;
pub mod journal;
pub mod keep;
pub mod metrics;
pub mod page;
pub mod remote;
pub mod segment;
pub mod serve;
mod tidy;
mod weigh;

use crate::reading::Reader;
use crate::store::Store;
use http::{App, Token};
use ingest::{Budget, Pool};
use journal::{Event, Journal, Keep};
use metrics::Metrics;

/// The part of the memory that what was made of texts may take; requests may take half of it.
const REMEMBERED: usize = 8;

/// Settings of a collector.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The store folder, or `s3://bucket/prefix`.
    pub store: PathBuf,
    /// The journal's folder; none: `journal` in the store, or `baton-data/journal` where that is no folder.
    pub journal: Option<PathBuf>,
    /// Where OTLP over HTTP is listened for.
    pub http: SocketAddr,
    /// Where OTLP over gRPC is listened for.
    pub grpc: SocketAddr,
    /// Answer only when rows are synced.
    pub sync: bool,
    /// Rows become Parquet after this time at most.
    pub visible_after: Duration,
    /// Memory of the whole process, about; half of it is for requests, an eighth for what was
    /// made of texts.
    pub memory_limit: usize,
    /// Bytes of one body, packed or not.
    pub max_body: usize,
    /// Bytes of journal; past them senders are told to try again.
    pub journal_limit: u64,
    /// Threads that read requests.
    pub threads: usize,
    /// Certificates for both listeners; none: no TLS.
    pub tls: Option<CollectTls>,
    /// Token that every sender must show; none: no token is asked for.
    pub token: Option<String>,
    /// Listen on other than loopback addresses although senders need neither token nor certificate.
    pub insecure: bool,
    /// Merge small files of past hours.
    pub compact: bool,
    /// Remove hours older than this.
    pub keep: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self {
            store: "baton-data".into(),
            journal: None,
            http: loopback(4318),
            grpc: loopback(4317),
            sync: true,
            visible_after: Duration::from_secs(5),
            memory_limit: 1 << 30,
            max_body: 16 << 20,
            journal_limit: 4 << 30,
            threads: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            tls: None,
            token: None,
            insecure: false,
            compact: true,
            keep: None,
        }
    }
}

/// Why a collector did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is wrong.
    #[error("{0}")]
    Setting(String),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// The object store is away, and what is needed of it was never fetched before.
    #[error("{0}")]
    Remote(String),
    /// The system said no.
    #[error("{what}: {source}")]
    Io {
        /// To what.
        what: String,
        /// What it said.
        source: std::io::Error,
    },
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    move |source| Error::Io { what, source }
}

/// Is told in words what whoever runs the collector should know.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// A collector that runs.
pub struct Collector {
    /// Where OTLP over HTTP is listened for.
    pub http: SocketAddr,
    /// Where OTLP over gRPC is listened for.
    pub grpc: SocketAddr,
    app: Arc<App>,
    journal: Arc<Journal>,
    stop: watch::Sender<bool>,
    listeners: Vec<JoinHandle<()>>,
    _tidy: Option<tidy::Tidy>,
}

impl Collector {
    /// Starts a collector. Segments that an earlier one left are taken over first.
    ///
    /// # Errors
    /// Where a setting is wrong, the store or the journal cannot be opened, or an address is taken.
    pub async fn start(settings: Settings, config: Config, log: Log) -> Result<Self, Error> {
        let authenticated =
            settings.token.is_some() || settings.tls.as_ref().is_some_and(|t| t.client_ca.is_some());
        for a in [&settings.http, &settings.grpc] {
            if !serve::is_loopback(a) && !authenticated {
                let what = format!(
                    "{a} is reached from other machines, and senders need neither token nor certificate"
                );
                if !settings.insecure {
                    return Err(Error::Setting(format!(
                        "{what}: set a token or a client CA, or allow it with `insecure = true`"
                    )));
                }
                log(&format!("warning: {what}"));
            }
        }
        let tls = settings.tls.as_ref().map(serve::acceptor).transpose().map_err(Error::Setting)?;
        let metrics = Arc::new(Metrics::new());
        let url = settings.store.to_str().filter(|s| objects::is_url(s));
        let (default_journal, key, keep): (PathBuf, PrintKey, Keep) = match url {
            None => {
                let root = settings.store.clone();
                let key = Store::open(&root)?.key();
                (root.join("journal"), key, Box::new(move |name, batches| keep::local(&root, name, batches)))
            }
            Some(url) => {
                let journal = PathBuf::from("baton-data/journal");
                let dir = settings.journal.as_ref().unwrap_or(&journal);
                std::fs::create_dir_all(dir).map_err(io(dir.display().to_string()))?;
                let remote = remote::Remote::open(url, Handle::current()).map_err(Error::Setting)?;
                let key = remote.key(&dir.join("key")).await.map_err(Error::Remote)?;
                (journal, key, Box::new(move |name, batches| remote.keep(name, batches)))
            }
        };
        let dir = settings.journal.clone().unwrap_or(default_journal);
        let journal = open_journal(&settings, dir, keep, &metrics, log.clone())?;
        metrics.watch(journal.clone());
        let reader = Reader::remembering(Arc::new(config), key, settings.memory_limit / REMEMBERED);
        let pool =
            Pool::start(settings.threads, &reader, settings.max_body, journal.clone(), metrics.clone())
                .map_err(io("reading threads"))?;
        let bind = async |a: SocketAddr| {
            let l = TcpListener::bind(a).await.map_err(io(a.to_string()))?;
            let bound = l.local_addr().map_err(io(a.to_string()))?;
            Ok::<_, Error>((l, bound))
        };
        let (http_listener, http) = bind(settings.http).await?;
        let (grpc_listener, grpc) = bind(settings.grpc).await?;
        let app = Arc::new(App {
            pool,
            budget: Budget::new(settings.memory_limit / 2),
            metrics,
            max_body: settings.max_body,
            body_timeout: Duration::from_secs(30),
            token: settings.token.as_deref().map(Token::new),
            ready: AtomicBool::new(true),
            about: page::About {
                store: settings.store.display().to_string(),
                http: http.to_string(),
                grpc: grpc.to_string(),
            },
        });
        let place = match url {
            None => tidy::Place::Folder(settings.store.clone()),
            Some(url) => {
                let objects =
                    Objects::open(url, Patience::LONG).map_err(|e| Error::Setting(e.to_string()))?;
                tidy::Place::Objects(objects, Handle::current())
            }
        };
        let tidy = (settings.compact || settings.keep.is_some())
            .then(|| tidy::Tidy::start(place, settings.compact, settings.keep, log))
            .transpose()
            .map_err(io("housekeeping"))?;
        let (stop, stopped) = watch::channel(false);
        let listeners = vec![
            tokio::spawn(serve::serve(
                http_listener,
                http::http_routes(app.clone()),
                tls.clone(),
                stopped.clone(),
            )),
            tokio::spawn(serve::serve(grpc_listener, http::grpc_routes(app.clone()), tls, stopped)),
        ];
        Ok(Self { http, grpc, app, journal, stop, listeners, _tidy: tidy })
    }

    /// Ends: lets requests under way end, turns the journal into Parquet. False where not all of it could be; it stays in the
    /// journal for the next start.
    pub async fn stop(self, timeout: Duration) -> bool {
        self.app.ready.store(false, Ordering::Relaxed);
        let _ = self.stop.send(true);
        for l in self.listeners {
            let _ = l.await;
        }
        self.app.pool.close();
        let journal = self.journal.clone();
        tokio::task::spawn_blocking(move || journal.close(timeout)).await.unwrap_or(false)
    }
}

fn open_journal(
    settings: &Settings,
    dir: PathBuf,
    keep: Keep,
    metrics: &Arc<Metrics>,
    log: Log,
) -> Result<Arc<Journal>, Error> {
    let mut options = journal::Settings::new(dir.clone());
    options.sync = settings.sync;
    options.segment_age = settings.visible_after;
    options.limit = settings.journal_limit;
    let metrics = metrics.clone();
    let watch = Arc::new(move |event: Event<'_>| {
        metrics.journal(&event);
        match event {
            Event::Refused(e) => {
                log(&format!("the journal cannot be written, senders are told to try again: {e}"))
            }
            Event::Waiting { segment, reason } => {
                log(&format!("{}: cannot be stored yet: {reason}", segment.display()));
            }
            Event::Damaged { segment, reason } => {
                log(&format!("{}: damaged segment, set aside: {reason}", segment.display()));
            }
            Event::Adopted { dir, segments } => {
                log(&format!(
                    "{}: {segments} segments of a collector that ended are taken over",
                    dir.display()
                ));
            }
            Event::Appended { .. } | Event::Kept { .. } => {}
        }
    });
    Ok(Arc::new(Journal::open(options, keep, watch).map_err(io(dir.display().to_string()))?))
}
