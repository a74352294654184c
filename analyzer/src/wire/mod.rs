//! The SQL endpoint: a store's tables and measures over the Postgres wire protocol, for reading.
//!
//! ```text
//! listener -> connection (TLS, limits) -> startup (who is it) -> guard (only reading) -> query (time, cancelling) -> engine
//!                                                          tables: fresh, exchanged under running connections
//! ```
//!
//! The protocol and the catalog are those of `datafusion-postgres`; what that leaves open is closed here.

mod bounds;
mod catalog;
mod connection;
mod cursor;
mod fresh;
mod guard;
mod query;
mod startup;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use baton_record::config::Config;
use baton_record::serve::Tls;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::SessionContext;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::session::{self, Limits};
use connection::Running;
use fresh::Fresh;
use startup::Users;

/// The name of the one database.
pub const DATABASE: &str = "baton";
/// Connections that are told that there are too many; beyond them they are closed without a word.
const TOLD: usize = 64;
/// Pause after an error of the listener, for example where there are no file descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// Settings of the endpoint.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The store folder.
    pub store: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Who may connect, with the password; empty: everyone.
    pub users: Vec<(String, String)>,
    /// Certificate; none: no TLS.
    pub tls: Option<Tls>,
    /// Listen on other than loopback addresses although nobody needs a password, or passwords come over a plain connection.
    pub insecure: bool,
    /// A statement that takes longer is ended. Clients may ask for less, not for more.
    pub statement_timeout: Duration,
    /// Memory of all statements together in bytes; beyond it they spill to disk or fail.
    pub memory_limit: usize,
    /// Connections at once.
    pub connections: usize,
    /// Statements at once; others wait for their turn.
    pub statements: usize,
    /// How often the store is looked at for what is new.
    pub refresh: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            store: "baton-data".into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 5432)),
            users: Vec::new(),
            tls: None,
            insecure: false,
            statement_timeout: Duration::from_secs(60),
            memory_limit: 1 << 30,
            connections: 100,
            statements: 16,
            refresh: Duration::from_secs(5),
        }
    }
}

/// Why the endpoint did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is wrong.
    #[error("{0}")]
    Setting(String),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] session::Error),
    /// The system said no.
    #[error("{what}: {source}")]
    Io {
        /// To what.
        what: String,
        /// What it said.
        source: std::io::Error,
    },
}

/// Is told in words what whoever runs the endpoint should know.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// What all connections share.
struct Shared {
    settings: Settings,
    /// Every connection works on a copy of its state: same tables, settings of its own.
    ctx: SessionContext,
    users: Option<Users>,
    tls: Option<TlsAcceptor>,
    running: Running,
    statements: Arc<Semaphore>,
}

/// An endpoint that runs. Dropped, it ends, and with it the statements under way.
pub struct Endpoint {
    /// Where it listens.
    pub listen: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Endpoint {
    /// Opens the store and listens.
    ///
    /// # Errors
    /// Where a setting is wrong, the store cannot be opened, or the address is not to be had.
    pub async fn start(settings: Settings, config: Config, log: Log) -> Result<Self, Error> {
        if !settings.insecure && !settings.listen.ip().is_loopback() {
            let missing = match (settings.users.is_empty(), settings.tls.is_none()) {
                (true, _) => Some("users"),
                (false, true) => Some("tls"),
                (false, false) => None,
            };
            if let Some(missing) = missing {
                return Err(Error::Setting(format!(
                    "{} is no loopback address and [serve] has no {missing}; set it, or insecure = true",
                    settings.listen
                )));
            }
        }
        if settings.insecure && !settings.listen.ip().is_loopback() {
            log(&format!(
                "warning: insecure: whoever reaches {} may read the store or what is sent",
                settings.listen
            ));
        }
        let tls = settings.tls.as_ref().map(connection::acceptor).transpose()?;
        let users = (!settings.users.is_empty()).then(|| Users::new(&settings.users)).transpose()?;
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(settings.memory_limit)))
            .build_arc()
            .map_err(session::Error::from)?;
        let limits = Limits { memory: settings.memory_limit, ..Limits::default() };
        let fresh =
            Arc::new(Fresh::open(settings.store.clone(), config, limits.clone(), runtime.clone()).await?);
        let ctx = catalog::context(runtime, limits, fresh.clone()).await?;
        let listener = TcpListener::bind(settings.listen)
            .await
            .map_err(|source| Error::Io { what: format!("serve.listen: {}", settings.listen), source })?;
        let listen = listener
            .local_addr()
            .map_err(|source| Error::Io { what: settings.listen.to_string(), source })?;
        let shared = Arc::new(Shared {
            users,
            tls,
            running: Running::default(),
            statements: Arc::new(Semaphore::new(settings.statements.max(1))),
            ctx,
            settings,
        });
        let refresh = tokio::spawn(fresh.keep(shared.settings.refresh, log.clone()));
        let accept = tokio::spawn(accept(listener, shared, log));
        Ok(Self { listen, tasks: [refresh, accept] })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, log: Log) {
    let seats = Arc::new(Semaphore::new(shared.settings.connections.max(1)));
    let told = Arc::new(Semaphore::new(TOLD));
    // One line for a row of refusals.
    let full = Arc::new(AtomicBool::new(false));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let tcp = match listener.accept().await {
            Ok((tcp, _)) => tcp,
            Err(e) => {
                log(&format!("SQL listener: {e}"));
                tokio::time::sleep(BREATH).await;
                continue;
            }
        };
        let shared = shared.clone();
        if let Ok(seat) = seats.clone().try_acquire_owned() {
            full.store(false, Ordering::Relaxed);
            connections.spawn(async move {
                connection::serve(tcp, shared, false).await;
                drop(seat);
            });
        } else if let Ok(seat) = told.clone().try_acquire_owned() {
            if !full.swap(true, Ordering::Relaxed) {
                log(&format!(
                    "SQL: all {} connections are taken, others are refused",
                    shared.settings.connections
                ));
            }
            connections.spawn(async move {
                connection::serve(tcp, shared, true).await;
                drop(seat);
            });
        }
    }
}
