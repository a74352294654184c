//! Files of the assembled tables. A unit is a file of each table, under one name, with the rows of whole tasks.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{DataType, Fields};
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use datafusion::parquet::schema::types::ColumnPath;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use foldhash::HashSet;
use futures::{Stream, StreamExt};

use crate::group::{in_parallel, scan, trace_key};
use crate::place::Place;
use crate::plan::rows_of;
use crate::session::{Result, io};
use crate::sums::{self, Sources};
use crate::tables::{self, HandoffScores, MeasureSums};

/// Rows in one group of a table's file: what is held while it is written.
const TABLE_ROWS: usize = 128 * 1024;
/// Rows of a unit, all tables together, after which another one begins: where one of its tasks changes, all of it is written again.
const UNIT_ROWS: usize = 1 << 20;

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
        // Ranges of time and the measure leave out row groups; ranges of hashes leave out none.
        if matches!(f.data_type(), DataType::Timestamp(..)) || f.name() == "measure" {
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

fn path(dir: &Path, table: &str, unit: &str) -> PathBuf {
    dir.join(table).join(format!("{unit}.parquet"))
}

type Writer = ArrowWriter<BufWriter<fs::File>>;

fn open(dir: &Path, table: &str, fields: &Fields, unit: &str) -> Result<Writer> {
    let path = path(dir, table, unit);
    let file = BufWriter::new(fs::File::create(&path).map_err(io(&path))?);
    Ok(ArrowWriter::try_new(file, tables::schema_of(fields), Some(properties(fields)))?)
}

/// Makes the folders of all tables.
///
/// # Errors
/// Where the file system refuses.
pub(crate) fn create(dir: &Path) -> Result<()> {
    for (table, _) in tables::kept() {
        let folder = dir.join(table);
        fs::create_dir_all(&folder).map_err(io(&folder))?;
    }
    Ok(())
}

/// Makes them with a file without rows in each, so that it can be read before there are any.
///
/// # Errors
/// Where the file system refuses.
pub(crate) fn empty(dir: &Path) -> Result<()> {
    create(dir)?;
    tables::kept().try_for_each(|(table, fields)| {
        open(dir, table, &fields, "empty")?.close()?;
        Ok(())
    })
}

/// The files of a unit, below the folder of all tables.
pub(crate) fn files(unit: &str) -> impl Iterator<Item = String> + '_ {
    tables::kept().map(move |(table, _)| format!("{table}/{unit}.parquet"))
}

/// Writes batches of rows of all tables to units that begin with a name, and gives each with the number of its rows. A batch
/// holds whole tasks.
///
/// # Errors
/// The stream's, and where a file cannot be written.
pub(crate) async fn write(
    mut stream: impl Stream<Item = Result<RecordBatch, DataFusionError>> + Unpin,
    dir: PathBuf,
    name: String,
) -> Result<Vec<(String, usize)>> {
    let mut out: Vec<(String, usize)> = Vec::new();
    let mut writers: Vec<Writer> = Vec::new();
    while let Some(batch) = stream.next().await {
        if out.last().is_none_or(|(_, rows)| *rows >= UNIT_ROWS) {
            for w in writers.drain(..) {
                w.close()?;
            }
            let unit = format!("{name}-{:04}", out.len());
            for (table, fields) in tables::all() {
                writers.push(open(&dir, table, &fields, &unit)?);
            }
            out.push((unit, 0));
        }
        for (w, rows) in writers.iter_mut().zip(rows_of(&batch?)) {
            if rows.num_rows() > 0 {
                w.write(&rows)?;
                out.iter_mut().last().into_iter().for_each(|(_, n)| *n += rows.num_rows());
            }
        }
    }
    for w in writers {
        w.close()?;
    }
    Ok(out)
}

/// Writes what is computed of units beside their tables. They are computed together, since planning the questions takes longer than
/// asking them of few rows.
///
/// # Errors
/// The engine's, and where a file cannot be read or written.
pub(crate) async fn sum(runtime: Arc<RuntimeEnv>, dir: &Path, units: &[String]) -> Result<()> {
    // Rows come in the order of the files, and several such sums run side by side.
    let mut settings = SessionConfig::new().with_target_partitions(1);
    settings.options_mut().execution.collect_statistics = false;
    let ctx = SessionContext::new_with_config_rt(settings, runtime);
    for (table, fields) in tables::all() {
        let files: Vec<String> = units.iter().map(|u| path(dir, table, u).display().to_string()).collect();
        let fields = tables::schema_of(&fields);
        let frame = ctx.read_parquet(files, ParquetReadOptions::default().schema(&fields)).await?;
        ctx.register_table(table, frame.into_view())?;
    }
    let mut sources = Sources::default();
    for (place, unit) in units.iter().enumerate() {
        sources.add_unit(place, &path(dir, "handoffs", unit), &path(dir, "tasks", unit))?;
    }
    let computed = sums::compute(&ctx, &sources, units.len()).await?;
    for (unit, computed) in units.iter().zip(computed) {
        let parts = [
            (MeasureSums::NAME, MeasureSums::fields(), computed.sums),
            (HandoffScores::NAME, HandoffScores::fields(), computed.scores),
        ];
        for (table, fields, batches) in parts {
            let mut writer = open(dir, table, &fields, unit)?;
            for batch in batches {
                writer.write(&batch)?;
                // A group of rows for each measure: a question about one reads no other.
                writer.flush()?;
            }
            writer.close()?;
        }
    }
    Ok(())
}

/// Writes units of a folder of a place to one unit in a folder of this machine, without the rows of some tasks, on `threads` threads.
/// Gives it with the number of its rows; none where no row is left.
///
/// # Errors
/// Where a file cannot be read or written.
pub(crate) async fn rewrite(
    from: (&Place, &str),
    units: &[&String],
    without: &HashSet<String>,
    to: &Path,
    name: &str,
    threads: usize,
) -> Result<Option<(String, usize)>> {
    if units.is_empty() {
        return Ok(None);
    }
    let (place, folder) = from;
    let tables: Vec<_> = tables::all().into_iter().collect();
    let names: Vec<String> = tables
        .iter()
        .flat_map(|(table, _)| units.iter().map(move |u| format!("{folder}/{table}/{u}.parquet")))
        .collect();
    let local = place.local(&names).await?;
    let tables: Vec<_> = tables.iter().zip(local.paths.chunks(units.len())).collect();
    let rows = in_parallel(&tables, threads, |((table, fields), paths)| {
        let mut writer = open(to, table, fields, name)?;
        let mut n = 0;
        for path in *paths {
            let file = fs::File::open(path).map_err(io(path))?;
            for batch in ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(8192).build()? {
                let batch = batch?;
                let task = batch.column_by_name("task_id").and_then(|c| c.as_string_view_opt());
                let keep: BooleanArray =
                    task.into_iter().flatten().map(|t| t.map(|t| !without.contains(t))).collect();
                let batch = filter_record_batch(&batch, &keep)?;
                n += batch.num_rows();
                writer.write(&batch)?;
            }
        }
        writer.close()?;
        Ok(n)
    })?;
    match rows.iter().sum() {
        0 => {
            for ((table, _), _) in &tables {
                let path = path(to, table, name);
                fs::remove_file(&path).map_err(io(&path))?;
            }
            Ok(None)
        }
        n => Ok(Some((name.to_owned(), n))),
    }
}

/// A task that stands in a unit, with its traces.
#[derive(Debug)]
pub(crate) struct TaskTraces {
    /// Place of the unit in the list.
    pub(crate) unit: usize,
    pub(crate) task: String,
    pub(crate) traces: Vec<u128>,
}

/// All tasks of some units, by the files of their tasks.
///
/// # Errors
/// Where a file cannot be read.
pub(crate) fn tasks(files: &[PathBuf]) -> Result<Vec<TaskTraces>> {
    let mut out = Vec::new();
    for (place, path) in files.iter().enumerate() {
        let mut whole = true;
        scan(path, &["task_id", "trace_ids"], |batch| {
            let (task, traces) = (batch.column_by_name("task_id"), batch.column_by_name("trace_ids"));
            let (Some(task), Some(traces)) =
                (task.and_then(|c| c.as_string_view_opt()), traces.and_then(|c| c.as_list_opt::<i32>()))
            else {
                whole = false;
                return;
            };
            for i in 0..batch.num_rows() {
                let ids = traces.value(i);
                let ids = ids.as_string_view_opt().into_iter().flatten().flatten();
                out.push(TaskTraces {
                    unit: place,
                    task: task.value(i).to_owned(),
                    traces: ids.map(trace_key).collect(),
                });
            }
        })?;
        if !whole {
            return Err(io(path)(std::io::Error::other("holds no tasks")));
        }
    }
    Ok(out)
}
