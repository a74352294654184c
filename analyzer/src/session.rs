//! A store opened for questions: assembled tables and SQL over them.

use std::fs;
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
use crate::files;
use crate::kept::{Keeper, Kept};
use crate::tables::{self, MeasureSums};
use crate::window::Window;
use crate::{labels, rules, sums, violations};

/// Why a store could not be opened or a question not answered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no store.
    #[error("{}: no store here; name files to read, or fill a store with `baton import`", .0.display())]
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
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Memory of the query engine in bytes; beyond it spills to disk.
    pub memory: usize,
    /// Partitions worked on at once.
    pub partitions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: 1 << 30,
            partitions: std::thread::available_parallelism().map_or(2, std::num::NonZero::get),
        }
    }
}

/// A store opened for questions.
pub struct Session {
    ctx: SessionContext,
    store: PathBuf,
    key: PrintKey,
    limits: Limits,
    files: Vec<PathBuf>,
    kept: Kept,
    window: Window,
}

impl Session {
    /// Opens a store folder for questions about the tasks of a window. The assembled tables are kept in it, under `tables/`, and
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
        let spans = store.join("spans");
        if !spans.is_dir() {
            return Err(Error::NoStore(store.to_owned()));
        }
        let mut settings =
            SessionConfig::new().with_target_partitions(limits.partitions).with_information_schema(true);
        // Nothing is collected that a question does not ask for.
        settings.options_mut().execution.collect_statistics = false;
        settings.options_mut().execution.parquet.pushdown_filters = true;
        let ctx = SessionContext::new_with_config_rt(settings, runtime);
        let files = files::live(&spans)?;
        let key = read_key(store)?;
        let kept = Keeper { store, config, key, files: &files, limits, ctx: &ctx }.up_to_date().await?;
        let s = Self { ctx, store: store.to_owned(), key, limits, files, kept, window };
        s.register_spans().await?;
        s.register_tables().await?;
        violations::register(&s.ctx, config).await?;
        labels::register(&s.ctx, store).await?;
        Ok(s)
    }

    /// The same spans with their tables as they would be under another history filter, in the folder `out`. Only what the
    /// receivers of transfers saw, and what follows from that alone, differs: context, constraints, leaks.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub async fn under_filter(&self, config: &Config, filter: HistoryFilter, out: &Path) -> Result<Self> {
        let ctx = SessionContext::new_with_config_rt(self.ctx.copied_config(), self.ctx.runtime_env());
        let keeper = Keeper {
            store: &self.store,
            config,
            key: self.key,
            files: &self.files,
            limits: self.limits,
            ctx: &ctx,
        };
        let kept = keeper.anew(filter, out).await?;
        let s = Self { ctx, kept, store: self.store.clone(), files: self.files.clone(), ..*self };
        s.register_tables().await?;
        Ok(s)
    }

    /// The key under which the spans were fingerprinted.
    pub fn key(&self) -> PrintKey {
        self.key
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

    /// The folder that holds the assembled tables, one folder of Parquet files each.
    pub fn tables(&self) -> &Path {
        &self.kept.dir
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
        if self.files.is_empty() {
            let empty = RecordBatch::new_empty(schema::schema());
            self.ctx
                .register_table("spans", Arc::new(MemTable::try_new(schema::schema(), vec![vec![empty]])?))?;
            return Ok(());
        }
        let fields = schema::schema();
        let df = self.ctx.read_parquet(self.paths(), ParquetReadOptions::default().schema(&fields)).await?;
        if self.kept.each_once {
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

    fn paths(&self) -> Vec<String> {
        self.files.iter().map(|f| f.display().to_string()).collect()
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
            let dir = format!("{}/", self.kept.dir.join(name).display());
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

fn read_key(store: &Path) -> Result<PrintKey> {
    let path = store.join("key");
    match fs::read_to_string(&path) {
        Ok(t) => PrintKey::from_hex(&t).ok_or_else(|| Error::Io {
            path,
            source: std::io::Error::other("holds no key of 32 hex digits"),
        }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(PrintKey::default()),
        Err(e) => Err(io(&path)(e)),
    }
}
