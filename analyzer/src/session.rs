//! A store opened for questions: assembled tables and SQL over them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_record::config::Config;
use baton_record::prints::PrintKey;
use baton_record::schema;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{ParquetReadOptions, SQLOptions, SessionConfig, SessionContext, col, lit};

use crate::assemble::HistoryFilter;
use crate::engine::Engine;
use crate::files::{self, Live};
use crate::kept::{self, Keeper, Kept};
use crate::place::{Local, Place};
use crate::tables::{self, MeasureSums};
use crate::window::Window;
use crate::work::Worker;
use crate::{labels, rules, sums, violations};

/// Why a store could not be opened or a question not answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no store.
    #[error("{}: no store here; name files to read, or fill a store with `baton import` or `baton collect`", .0.display())]
    NoStore(PathBuf),
    /// A file of another layout.
    #[error("{path}: written in layout {found}, this version reads layout {}", schema::VERSION)]
    Layout {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: String,
    },
    /// A rule of the configuration is wrong.
    #[error(transparent)]
    Rule(#[from] baton_record::config::ConfigError),
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// The object store said no.
    #[error(transparent)]
    Objects(#[from] baton_record::objects::Error),
    /// The cluster said no, or cannot be reached.
    #[error("cluster at {scheduler}: {reason}")]
    Cluster {
        /// Its scheduler.
        scheduler: String,
        /// What it said.
        reason: String,
    },
    /// A thread ended without its result (a defect).
    #[error("a worker ended without its result")]
    Worker,
    /// The engine failed, or the question is wrong.
    #[error("{}", .0.strip_backtrace())]
    Engine(Box<DataFusionError>),
    /// A column did not fit (a defect).
    #[error(transparent)]
    Arrow(#[from] datafusion::arrow::error::ArrowError),
    /// A file could not be read or written.
    #[error(transparent)]
    Parquet(#[from] datafusion::parquet::errors::ParquetError),
}

impl From<DataFusionError> for Error {
    fn from(e: DataFusionError) -> Self {
        Self::Engine(Box::new(e))
    }
}

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Of several recordings of a span one that ended, then the first.
const ONCE: &str = "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY trace_id, span_id, record \
     ORDER BY \"end\" IS NULL, start, \"end\" DESC, name) AS recording FROM recordings) \
     WHERE recording = 1 OR record = 'log'";

/// What can be asked beside the tables.
const VIEWS: [&str; 4] = ["rule_checks", "violations", "labels", "spans"];

/// Settings of a session.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Memory of the query engine in bytes; beyond it spills to disk.
    pub memory: usize,
    /// Partitions worked on at once.
    pub partitions: usize,
    /// What assembles tables and sums measures.
    pub engine: Engine,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            partitions: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
            engine: Engine::Local,
        }
    }
}

/// A store opened for questions.
pub struct Session {
    ctx: SessionContext,
    worker: Arc<Worker>,
    limits: Limits,
    live: Arc<Live>,
    kept: Kept,
    /// Files of an object store that are read from this machine.
    _labels: Local,
    window: Window,
}

impl Session {
    /// Opens a store, a folder or a URL, for questions about the tasks of a window. The assembled tables are kept in it, under `tables/`, and
    /// brought up to date where files of spans came or went; under another configuration, and by another build of this program, they
    /// are made anew.
    ///
    /// # Errors
    /// Where there is no store, a file cannot be read, or the disk is full.
    pub async fn open(store: &Path, config: &Config, limits: Limits, window: Window) -> Result<Self> {
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(limits.memory)))
            .build_arc()?;
        Self::within(store, config, limits, window, runtime).await
    }

    /// As [`Self::open`], with memory that is shared with others.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn within(
        store: &Path,
        config: &Config,
        limits: Limits,
        window: Window,
        runtime: Arc<RuntimeEnv>,
    ) -> Result<Self> {
        rules::check(config)?;
        let place = Place::open(store)?;
        if !place.is_store().await? {
            return Err(Error::NoStore(store.to_owned()));
        }
        let mut settings =
            SessionConfig::new().with_target_partitions(limits.partitions).with_information_schema(true);
        // Nothing is collected that a question does not ask for.
        settings.options_mut().execution.collect_statistics = false;
        settings.options_mut().execution.parquet.pushdown_filters = true;
        let ctx = SessionContext::new_with_config_rt(settings, runtime.clone());
        place.register(&ctx)?;
        let before = kept::current(&place).await?;
        let known = before.as_ref().map(|k| k.state.replaces.clone()).unwrap_or_default();
        let live = Arc::new(files::live(&place, &known).await?);
        let key = place.key().await?;
        let worker = Arc::new(Worker::new(place, config.clone(), key, runtime));
        let keeper = Keeper { worker: worker.clone(), engine: &limits.engine, live: &live, limits: &limits };
        let kept = keeper.up_to_date(before).await?;
        kept::wait_until_listed(&worker.place, &kept).await?;
        let labels = labels::files(&worker.place).await?;
        let s = Self { ctx, worker, limits, live, kept, _labels: Local::default(), window };
        s.register_spans().await?;
        s.register_tables().await?;
        violations::register(&s.ctx, config).await?;
        labels::register(&s.ctx, &labels.paths).await?;
        Ok(Self { _labels: labels, ..s })
    }

    /// The same spans with their tables as they would be under another history filter, in the folder `out`. Only what the
    /// receivers of transfers saw, and what follows from that alone, differs: context, constraints, leaks.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn under_filter(&self, config: &Config, filter: HistoryFilter, out: &Path) -> Result<Self> {
        let ctx = SessionContext::new_with_config_rt(self.ctx.copied_config(), self.ctx.runtime_env());
        let worker = Worker { config: config.clone(), ..Worker::clone(&self.worker) };
        let mut keeper = Keeper {
            worker: Arc::new(worker),
            engine: &self.limits.engine,
            live: &self.live,
            limits: &self.limits,
        };
        let kept = keeper.anew(filter, out).await?;
        let s = Self {
            ctx,
            worker: keeper.worker,
            limits: self.limits.clone(),
            live: self.live.clone(),
            kept,
            _labels: Local::default(),
            window: self.window,
        };
        s.register_tables().await?;
        Ok(s)
    }

    /// The key under which the spans were fingerprinted.
    pub fn key(&self) -> PrintKey {
        self.worker.key
    }

    /// The query engine, with `spans` and all tables registered.
    pub fn context(&self) -> &SessionContext {
        &self.ctx
    }

    /// Names of all that can be asked: tables, and views over them.
    pub fn tables_and_views(&self) -> impl Iterator<Item = &'static str> {
        tables::kept().map(|(name, _)| name).chain(VIEWS)
    }

    /// The window that the tables show; `spans` holds those of all times.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Runs a query and collects its answer.
    ///
    /// # Errors
    /// The engine's.
    pub async fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        Ok(self.ctx.sql(sql).await?.collect().await?)
    }

    /// Runs a query with values for `$1`, `$2`, …, all text.
    ///
    /// # Errors
    /// The engine's.
    pub async fn ask(&self, sql: &str, values: &[&str]) -> Result<Vec<RecordBatch>> {
        let values: Vec<ScalarValue> =
            values.iter().map(|v| ScalarValue::Utf8View(Some((*v).to_owned()))).collect();
        Ok(self.ctx.sql(sql).await?.with_param_values(values)?.collect().await?)
    }

    /// Runs a user's query, which may only read, and collects its answer with its columns.
    ///
    /// # Errors
    /// Where the query is wrong or would change something, and the engine's.
    pub async fn read_only(&self, sql: &str) -> Result<(Arc<Schema>, Vec<RecordBatch>)> {
        self.sums().await?;
        let reading =
            SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        let frame = self.ctx.sql_with_options(sql, reading).await?;
        let fields = frame.schema().inner().clone();
        Ok((fields, frame.collect().await?))
    }

    async fn register_spans(&self) -> Result<()> {
        if self.live.files.is_empty() {
            let empty = RecordBatch::new_empty(schema::schema());
            self.ctx
                .register_table("spans", Arc::new(MemTable::try_new(schema::schema(), vec![vec![empty]])?))?;
            return Ok(());
        }
        let fields = schema::schema();
        let files: Vec<String> = self.live.files.iter().map(|f| self.worker.place.address(&f.name)).collect();
        let df = self.ctx.read_parquet(files, ParquetReadOptions::default().schema(&fields)).await?;
        if self.kept.each_once() {
            self.ctx.register_table("spans", df.into_view())?;
            return Ok(());
        }
        // A span that was sent again counts once, here as everywhere. A span may have many log records: they all count.
        self.ctx.register_table("recordings", df.into_view())?;
        let once = self.ctx.sql(ONCE).await?.drop_columns(&["recording"])?;
        self.ctx.deregister_table("recordings")?;
        self.ctx.register_table("spans", once.into_view())?;
        Ok(())
    }

    /// Sees to it that `measure_sums` can be asked.
    ///
    /// # Errors
    /// The engine's.
    pub async fn sums(&self) -> Result<()> {
        if !self.window.is_of_hours() && !self.ctx.table_exist(MeasureSums::NAME)? {
            sums::register(&self.ctx).await?;
        }
        Ok(())
    }

    async fn register_tables(&self) -> Result<()> {
        for (name, fields) in tables::kept() {
            // Sums on disk are by the hour.
            if name == MeasureSums::NAME && !self.window.is_of_hours() {
                continue;
            }
            let dir = format!("{}/", self.worker.made.address(&format!("{}/{name}", self.kept.folder)));
            let fields = tables::schema_of(&fields);
            let options = ParquetReadOptions::default().schema(&fields);
            if self.window.is_everything() {
                self.ctx.register_parquet(name, dir, options).await?;
                continue;
            }
            // Groups of rows of other times are not read.
            let mut frame = self.ctx.read_parquet(dir, options).await?;
            let at = |ns: i64| lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())));
            if let Some(since) = self.window.since {
                frame = frame.filter(col("last_activity").gt_eq(at(since)))?;
            }
            if let Some(until) = self.window.until {
                frame = frame.filter(col("last_activity").lt(at(until)))?;
            }
            self.ctx.register_table(name, frame.into_view())?;
        }
        Ok(())
    }
}

pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error + '_ {
    move |source| Error::Io { path: path.to_owned(), source }
}
