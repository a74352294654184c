//! A store opened for questions: assembled tables and SQL over them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use baton_record::canonical::sha256_hex;
use baton_record::config::Config;
use baton_record::prints::PrintKey;
use baton_record::schema;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Fields, Schema};
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use datafusion::parquet::file::reader::FileReader;
use datafusion::parquet::file::serialized_reader::SerializedFileReader;
use datafusion::parquet::schema::types::ColumnPath;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{ParquetReadOptions, SQLOptions, SessionConfig, SessionContext};
use futures::{Stream, StreamExt};

use crate::aside::{Aside, Bucket};
use crate::assemble::{HistoryFilter, Rules};
use crate::files;
use crate::group;
use crate::labels;
use crate::plan::{AssembleExec, rows_of};
use crate::tables;

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

/// The file beside the tables that says how many recordings of spans there are beyond the first of each.
const DOUBLED: &str = "doubled";

/// Of several recordings of a span one that ended, then the first.
const ONCE: &str = "SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY trace_id, span_id, record \
     ORDER BY \"end\" IS NULL, start, \"end\" DESC, name) AS recording FROM recordings) \
     WHERE recording = 1 OR record = 'log'";

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
    key: PrintKey,
    partitions: usize,
    memory: usize,
    files: Vec<PathBuf>,
    /// Where the assembled tables are.
    tables: PathBuf,
}

impl Session {
    /// Opens a store folder. Its assembled tables are kept in it, under `tables/`, and used again as long as nothing changed:
    /// neither the files of spans, nor the configuration, nor this program.
    ///
    /// # Errors
    /// Where there is no store, a file cannot be read, or the disk is full.
    pub async fn open(store: &Path, config: &Config, limits: Limits) -> Result<Self> {
        let spans = store.join("spans");
        if !spans.is_dir() {
            return Err(Error::NoStore(store.to_owned()));
        }
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(limits.memory)))
            .build_arc()?;
        let mut settings =
            SessionConfig::new().with_target_partitions(limits.partitions).with_information_schema(true);
        // Nothing is collected that a question does not ask for.
        settings.options_mut().execution.collect_statistics = false;
        settings.options_mut().execution.parquet.pushdown_filters = true;
        let ctx = SessionContext::new_with_config_rt(settings, runtime);
        let key = read_key(store)?;
        let files = files::live(&spans)?;
        let tables = store.join("tables");
        let s = Self { ctx, key, partitions: limits.partitions, memory: limits.memory, files, tables };
        let identity = s.identity(config);
        let mark = s.tables.join("identity");
        if fs::read_to_string(&mark).ok().as_deref() != Some(identity.as_str()) {
            s.build(store, config, &identity).await?;
        }
        s.register_spans().await?;
        s.register_tables().await?;
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
        let (files, tables) = (self.files.clone(), out.to_owned());
        let s = Self { ctx, key: self.key, partitions: self.partitions, memory: self.memory, files, tables };
        let rules = Rules { filter: Some(Arc::new(filter)), ..Rules::new(config, self.key) };
        s.assemble(Arc::new(rules), out).await?;
        s.register_tables().await?;
        Ok(s)
    }

    /// The key under which the spans were fingerprinted.
    pub fn key(&self) -> PrintKey {
        self.key
    }

    /// What the tables depend on.
    fn identity(&self, config: &Config) -> String {
        let mut parts = vec![schema::VERSION.to_owned(), config.identity.clone()];
        // Another build of this program may assemble otherwise.
        if let Ok(m) = std::env::current_exe().and_then(fs::metadata) {
            let modified = m.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
            parts.push(format!("{} {:?}", m.len(), modified));
        }
        // Names of files say their content.
        parts.extend(self.files.iter().map(|f| f.display().to_string()));
        sha256_hex(parts.join("\n").as_bytes())
    }

    /// Assembles into a folder beside the tables and puts it in their place when it is whole.
    async fn build(&self, store: &Path, config: &Config, identity: &str) -> Result<()> {
        let fresh = tempfile::Builder::new().prefix(".tables-").tempdir_in(store).map_err(io(store))?;
        let rules = Arc::new(Rules::new(config, self.key));
        self.assemble(rules.clone(), fresh.path()).await?;
        let mark = fresh.path().join(DOUBLED);
        fs::write(&mark, rules.doubled.load(Ordering::Relaxed).to_string()).map_err(io(&mark))?;
        let mark = fresh.path().join("identity");
        fs::write(&mark, identity).map_err(io(&mark))?;
        let old = tempfile::Builder::new().prefix(".tables-").tempdir_in(store).map_err(io(store))?;
        match fs::rename(&self.tables, old.path().join("old")) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(&self.tables)(e)),
            _ => {}
        }
        let fresh = fresh.keep();
        fs::rename(&fresh, &self.tables).map_err(io(&self.tables))
    }

    /// The query engine, with `spans` and all tables registered.
    pub fn context(&self) -> &SessionContext {
        &self.ctx
    }

    /// The folder that holds the assembled tables, one folder of Parquet files each.
    pub fn tables(&self) -> &Path {
        &self.tables
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
        let doubled = fs::read_to_string(self.tables.join(DOUBLED)).unwrap_or_default();
        if doubled == "0" {
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

    async fn assemble(&self, rules: Arc<Rules>, out: &Path) -> Result<()> {
        let (files, threads) = (self.files.clone(), self.partitions);
        let groups = tokio::task::spawn_blocking(move || group::groups(&files, threads))
            .await
            .map_err(|_| Error::Worker)??;
        // Also without rows: every table then has a file.
        write_tables(futures::stream::empty().boxed(), out.to_owned(), "empty".to_owned()).await?;
        if self.files.is_empty() {
            return Ok(());
        }
        let rest = tempfile::Builder::new().prefix("aside-").tempdir_in(out).map_err(io(out))?;
        let buckets = self.bytes(groups.rows)? / (self.memory / BUCKET).max(1) + 1;
        let aside = (!groups.apart.is_empty())
            .then(|| Arc::new(Aside::new(groups.apart, rest.path().to_owned(), buckets)));
        let ctx = self.scanning();
        let fields = schema::schema();
        let frame = ctx.read_parquet(self.paths(), ParquetReadOptions::default().schema(&fields)).await?;
        let plan = AssembleExec::new(frame.create_physical_plan().await?, rules.clone(), aside.clone());
        let mut work = Work::new();
        for p in 0..plan.properties().partitioning.partition_count() {
            work.spawn(write_tables(plan.execute(p, ctx.task_ctx())?, out.to_owned(), format!("0-{p:04}")));
        }
        all(work).await?;
        let Some(aside) = aside else { return Ok(()) };
        for b in 0..aside.buckets() {
            let aside = aside.clone();
            let bucket = tokio::task::spawn_blocking(move || Bucket::read(&aside, b, threads))
                .await
                .map_err(|_| Error::Worker)??;
            let bucket = Arc::new(bucket);
            let mut work = Work::new();
            for (n, part) in bucket.parts(threads).into_iter().enumerate() {
                let rows = futures::stream::iter(bucket.clone().assemble(part, rules.clone()));
                work.spawn(write_tables(rows, out.to_owned(), format!("1-{b:04}-{n:04}")));
            }
            all(work).await?;
        }
        Ok(())
    }

    /// How many bytes so many rows take, roughly.
    fn bytes(&self, rows: usize) -> Result<usize> {
        if rows == 0 {
            return Ok(0);
        }
        let (mut all, mut bytes) = (0usize, 0usize);
        for path in &self.files {
            let file = fs::File::open(path).map_err(io(path))?;
            for g in SerializedFileReader::new(file)?.metadata().row_groups() {
                all += usize::try_from(g.num_rows()).unwrap_or(0);
                bytes += usize::try_from(g.total_byte_size()).unwrap_or(0);
            }
        }
        Ok((bytes / all.max(1)).saturating_mul(rows))
    }

    /// For reading all files, each from its start to its end by one stream.
    fn scanning(&self) -> SessionContext {
        let mut settings = self.ctx.copied_config();
        settings.options_mut().optimizer.repartition_file_scans = false;
        SessionContext::new_with_config_rt(settings, self.ctx.runtime_env())
    }

    fn paths(&self) -> Vec<String> {
        self.files.iter().map(|f| f.display().to_string()).collect()
    }

    async fn register_tables(&self) -> Result<()> {
        for (name, fields) in tables::all() {
            let dir = self.tables.join(name);
            let fields = tables::schema_of(&fields);
            self.ctx
                .register_parquet(
                    name,
                    format!("{}/", dir.display()),
                    ParquetReadOptions::default().schema(&fields),
                )
                .await?;
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

type Work = tokio::task::JoinSet<Result<()>>;

async fn all(mut work: Work) -> Result<()> {
    while let Some(done) = work.join_next().await {
        done.map_err(|_| Error::Worker)??;
    }
    Ok(())
}

/// Rows that were set aside are held while they are assembled, and take some times the room that they take in files.
const BUCKET: usize = 8;

/// Rows in one group of a table's file: what is held while it is written.
const TABLE_ROWS: usize = 128 * 1024;

/// How a table is written. Tables are made anew from the spans, so fast to write counts more than small; and a file has many
/// columns, each with a compressor, whose state is large for the stronger kinds.
fn properties(fields: &Fields) -> WriterProperties {
    let mut p = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_max_row_group_row_count(Some(TABLE_ROWS))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_created_by("baton".to_owned());
    for f in fields {
        let column = ColumnPath::from(f.name().as_str());
        // Ranges of time leave out row groups; ranges of hashes leave out none.
        if matches!(f.data_type(), DataType::Timestamp(..)) {
            p = p.set_column_statistics_enabled(column.clone(), EnabledStatistics::Chunk);
        }
        // A dictionary of what differs in every row, or of numbers, takes time for little.
        let text = matches!(f.data_type(), DataType::Utf8View | DataType::List(_));
        if !text || tables::DISTINCT.contains(&f.name().as_str()) {
            p = p.set_column_dictionary_enabled(column.clone(), false);
        }
        // Hashes do not compress.
        if tables::HASHES.contains(&f.name().as_str()) {
            p = p.set_column_compression(column, Compression::UNCOMPRESSED);
        }
    }
    p.build()
}

/// Writes the rows of one partition, a file per table; a table without rows gets an empty file.
async fn write_tables(
    mut stream: impl Stream<Item = Result<RecordBatch, DataFusionError>> + Unpin,
    dir: PathBuf,
    name: String,
) -> Result<()> {
    let mut writers = Vec::new();
    for (table, fields) in tables::all() {
        let folder = dir.join(table);
        fs::create_dir_all(&folder).map_err(io(&folder))?;
        let path = folder.join(format!("{name}.parquet"));
        let file = fs::File::create(&path).map_err(io(&path))?;
        let properties = properties(&fields);
        writers.push(ArrowWriter::try_new(
            std::io::BufWriter::new(file),
            tables::schema_of(&fields),
            Some(properties),
        )?);
    }
    while let Some(batch) = stream.next().await {
        for (w, rows) in writers.iter_mut().zip(rows_of(&batch?)) {
            if rows.num_rows() > 0 {
                w.write(&rows)?;
            }
        }
    }
    for w in writers {
        w.close()?;
    }
    Ok(())
}
