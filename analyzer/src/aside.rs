//! Tasks of several files or traces. Their rows are written to files as they are met, then read again and brought together.
//!
//! Few tasks are such ones. The files are divided by task into buckets that fit into memory. No row is moved: a task is a list of
//! places in what was read.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_record::schema::{Contents, SpanColumns, SpanRef, schema};
use datafusion::arrow::array::{BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::error::Result as EngineResult;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::{EnabledStatistics, WriterProperties};
use foldhash::HashMap;

use crate::assemble::Rules;
use crate::group::trace_key;
use crate::plan::Assembler;
use crate::session::{Error, Result};

/// Rows in one group of a file: a part of them is held while it is written.
const GROUP_ROWS: usize = 32 * 1024;

/// Traces whose rows are set aside.
#[derive(Debug)]
pub struct Aside {
    /// The traces, each with the key of its task.
    traces: Arc<HashMap<u128, u128>>,
    dir: PathBuf,
    buckets: usize,
}

impl Aside {
    /// For some traces, each with the key of its task; the files go to a folder.
    pub fn new(traces: Arc<HashMap<u128, u128>>, dir: PathBuf, buckets: usize) -> Self {
        Self { traces, dir, buckets: buckets.max(1) }
    }

    /// The task of a trace that is set aside.
    pub fn task(&self, trace: &str) -> Option<u128> {
        self.traces.get(&trace_key(trace)).copied()
    }

    fn bucket(&self, task: u128) -> usize {
        // Ids may have a pattern.
        let mixed = ((task >> 64) as u64 ^ task as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed as usize % self.buckets
    }

    /// The bucket of a file, by its name.
    pub(crate) fn bucket_of(file: &str) -> Option<usize> {
        file.split_once('-')?.0.parse().ok()
    }
}

/// Writes what one stream of rows sets aside.
pub struct Writer {
    aside: Arc<Aside>,
    stream: usize,
    /// By bucket.
    files: Vec<Option<ArrowWriter<File>>>,
}

impl Writer {
    /// For the stream of this number.
    pub fn new(aside: Arc<Aside>, stream: usize) -> Self {
        let files = (0..aside.buckets).map(|_| None).collect();
        Self { aside, stream, files }
    }

    /// What is set aside.
    pub fn aside(&self) -> &Aside {
        &self.aside
    }

    /// Writes some rows of a batch, each range with its task.
    ///
    /// # Errors
    /// Where a file cannot be written.
    pub fn write(&mut self, batch: &RecordBatch, ranges: &[(Range<usize>, u128)]) -> EngineResult<()> {
        for bucket in 0..self.files.len() {
            let mut picked = vec![false; batch.num_rows()];
            let mut any = false;
            for (rows, _) in ranges.iter().filter(|(_, task)| self.aside.bucket(*task) == bucket) {
                picked[rows.clone()].fill(true);
                any = true;
            }
            if !any {
                continue;
            }
            let rows = filter_record_batch(batch, &BooleanArray::from(picked))?;
            let file = match &mut self.files[bucket] {
                Some(f) => f,
                none => none.insert(open(&self.aside.dir, bucket, self.stream)?),
            };
            file.write(&rows)?;
        }
        Ok(())
    }

    /// Ends all files.
    ///
    /// # Errors
    /// Where one cannot be written.
    pub fn close(self) -> EngineResult<()> {
        for f in self.files.into_iter().flatten() {
            f.close()?;
        }
        Ok(())
    }
}

fn open(dir: &Path, bucket: usize, stream: usize) -> EngineResult<ArrowWriter<File>> {
    let file = File::create(dir.join(format!("{bucket:04}-{stream:04}.parquet")))?;
    // Read once, soon: not worth the time of strong compression and of dictionaries.
    let properties = WriterProperties::builder()
        .set_compression(Compression::LZ4_RAW)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .build();
    Ok(ArrowWriter::try_new(file, schema(), Some(properties))?)
}

/// The rows of a bucket.
pub struct Bucket {
    batches: Vec<SpanColumns>,
    /// Stretches of rows of one trace, sorted by task.
    stretches: Vec<Stretch>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Stretch {
    task: u128,
    batch: usize,
    from: usize,
    to: usize,
}

impl Bucket {
    /// Reads the files of a bucket, in which rows of these traces stand.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn read(traces: &HashMap<u128, u128>, files: &[PathBuf]) -> Result<Self> {
        let mut batches = Vec::new();
        for path in files {
            batches.extend(batches_of(path)?);
        }
        let mut stretches = Vec::new();
        for (batch, columns) in batches.iter().enumerate() {
            let mut from = 0;
            for to in 1..=columns.len() {
                if to < columns.len() && columns.trace_id(to) == columns.trace_id(from) {
                    continue;
                }
                if let Some(task) = traces.get(&trace_key(columns.trace_id(from))).copied() {
                    stretches.push(Stretch { task, batch, from, to });
                }
                from = to;
            }
        }
        stretches.sort_unstable();
        Ok(Self { batches, stretches })
    }

    /// Assembles its tasks, a batch of rows of all tables at a time.
    pub fn assemble(self, rules: Arc<Rules>) -> impl Iterator<Item = EngineResult<RecordBatch>> {
        let mut assembler = Assembler::new(rules);
        let mut at = 0;
        std::iter::from_fn(move || {
            while at < self.stretches.len() && !assembler.is_full() {
                let task = self.stretches[at].task;
                let n = self.stretches[at..].iter().take_while(|s| s.task == task).count();
                let rows: Vec<SpanRef<'_>> = self.stretches[at..at + n]
                    .iter()
                    .flat_map(|s| (s.from..s.to).map(|row| self.batches[s.batch].span(row)))
                    .collect();
                assembler.add(&rows, &mut Contents::default());
                at += n;
            }
            assembler.flush().transpose()
        })
    }
}

fn batches_of(path: &Path) -> Result<Vec<SpanColumns>> {
    let file = File::open(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
    let mut out = Vec::new();
    for batch in ParquetRecordBatchReaderBuilder::try_new(file)?.with_batch_size(8192).build()? {
        out.push(SpanColumns::new(&batch?)?);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_record::schema::Encoder;
    use baton_record::span::Span;

    #[test]
    fn each_row_is_found_again_in_the_bucket_of_its_task() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let trace = |n: usize| format!("{n:032x}");
        // Two traces are one task.
        let traces: Arc<HashMap<u128, u128>> =
            Arc::new((0..40).map(|n| (trace_key(&trace(n)), (n / 2) as u128)).collect());
        let aside = Arc::new(Aside::new(traces.clone(), dir.path().to_owned(), 3));
        for stream in 0..2 {
            // Traces that are not set aside stand between them, and each trace has a row in both streams.
            let rows: Vec<Span> = (0..60)
                .map(|n| Span { trace_id: trace(n), span_id: format!("{stream}{n}"), ..Span::default() })
                .collect();
            let batch = Encoder::default().encode(&rows)?;
            let ranges: Vec<_> = (0..60).filter_map(|n| Some((n..n + 1, aside.task(&trace(n))?))).collect();
            let mut w = Writer::new(aside.clone(), stream);
            w.write(&batch, &ranges)?;
            w.close()?;
        }
        let mut seen = std::collections::BTreeMap::new();
        let mut files: std::collections::BTreeMap<usize, Vec<PathBuf>> = Default::default();
        for entry in std::fs::read_dir(dir.path())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|n| n.to_str()).and_then(Aside::bucket_of);
            files.entry(name.ok_or("a file of no bucket")?).or_default().push(path);
        }
        assert_eq!(files.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        for (b, files) in files {
            let bucket = Bucket::read(&traces, &files)?;
            assert!(!bucket.stretches.is_empty());
            for s in &bucket.stretches {
                let e = seen.entry(s.task).or_insert((b, 0));
                assert_eq!(e.0, b);
                e.1 += s.to - s.from;
            }
        }
        assert_eq!(seen.len(), 20);
        assert!(seen.values().all(|(_, rows)| *rows == 4));
        Ok(())
    }
}
