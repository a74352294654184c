//! The tables as they are now. They are exchanged as a whole, under connections that stay.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use baton_record::config::Config;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;

use super::Log;
use crate::files::SPANS;
use crate::measures::ALL;
use crate::place::Place;
use crate::session::{Error, Limits, Result, Session};
use crate::window::Window;
use crate::{kept, labels};

type Tables = BTreeMap<String, Arc<dyn TableProvider>>;

/// What tells that something is new.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Names of files of spans. A file never changes under its name.
    spans: Vec<String>,
    labels: Vec<String>,
    /// The assembled tables that count, whoever made them: those that were read before may go away.
    tables: Option<String>,
}

impl Seen {
    async fn now(place: &Place) -> Result<Self> {
        let names = async |folder| {
            let found = place.list(folder).await?;
            Ok::<_, Error>(found.into_iter().map(|f| f.name).collect::<Vec<_>>())
        };
        Ok(Self {
            spans: names(SPANS).await?,
            labels: names(labels::FOLDER).await?,
            tables: kept::current_folder(place).await?,
        })
    }
}

/// The schema of a store, kept up to date.
pub(super) struct Fresh {
    store: PathBuf,
    place: Place,
    config: Config,
    limits: Limits,
    runtime: Arc<RuntimeEnv>,
    tables: RwLock<Arc<Tables>>,
    seen: RwLock<Option<Seen>>,
}

impl fmt::Debug for Fresh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tables of {}", self.store.display())
    }
}

impl Fresh {
    pub(super) async fn open(
        store: PathBuf,
        config: Config,
        limits: Limits,
        runtime: Arc<RuntimeEnv>,
    ) -> Result<Self> {
        let place = Place::open(&store)?;
        let (tables, seen) = (RwLock::default(), RwLock::new(None));
        let fresh = Self { store, place, config, limits, runtime, tables, seen };
        fresh.look().await?;
        Ok(fresh)
    }

    /// Looks at the store again and again.
    pub(super) async fn keep(self: Arc<Self>, every: Duration, log: Log) {
        let mut failing = false;
        loop {
            tokio::time::sleep(every).await;
            match self.look().await {
                Ok(()) => failing = false,
                // What was there before is still served.
                Err(e) if !failing => {
                    failing = true;
                    log(&format!("SQL: the tables could not be brought up to date, trying again: {e}"));
                }
                Err(_) => {}
            }
        }
    }

    /// Takes what is new, where something is.
    async fn look(&self) -> Result<()> {
        let mut now = Seen::now(&self.place).await?;
        if self.seen.read().unwrap_or_else(PoisonError::into_inner).as_ref() == Some(&now) {
            return Ok(());
        }
        let session = Session::within(
            &self.store,
            &self.config,
            self.limits.clone(),
            Window::default(),
            self.runtime.clone(),
        )
        .await?;
        let ctx = session.context();
        let mut tables = Tables::new();
        for name in session.tables_and_views() {
            tables.insert(name.to_owned(), ctx.table_provider(name).await?);
        }
        for m in ALL {
            tables.insert(format!("measure_{}", m.name), ctx.sql(m.sql).await?.into_view());
        }
        // Opening may have brought them up to date.
        now.tables = kept::current_folder(&self.place).await?;
        *self.tables.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tables);
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }

    fn now(&self) -> Arc<Tables> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[async_trait]
impl SchemaProvider for Fresh {
    fn table_names(&self) -> Vec<String> {
        self.now().keys().cloned().collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        Ok(self.now().get(name).cloned())
    }

    fn table_exist(&self, name: &str) -> bool {
        self.now().contains_key(name)
    }
}
