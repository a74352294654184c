//! Tasks of several files or traces. Their rows are written to files as they are met, then read again and brought together.
//!
//! Few tasks are such ones. The files are divided by task into buckets that fit into memory, one of which is worked on at a
//! time. No row is moved: a task is a list of places in what was read.

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
use crate::group::{in_parallel, trace_key};
use crate::plan::Assembler;
use crate::session::{Error, Result};

/// Rows in one group of a file: a part of them is held while it is written.
const GROUP_ROWS: usize = 32 * 1024;

/// Traces whose rows are set aside.
#[derive(Debug)]
pub struct Aside {
    /// The traces, each with the key of its task.
    traces: HashMap<u128, u128>,
    dir: PathBuf,
    buckets: usize,
}

impl Aside {
    /// For some traces, each with the key of its task; the files go to a folder.
    pub fn new(traces: HashMap<u128, u128>, dir: PathBuf, buckets: usize) -> Self {
        Self { traces, dir, buckets: buckets.max(1) }
    }

    /// The number of parts that are worked on one after the other.
    pub fn buckets(&self) -> usize {
        self.buckets
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

    fn prefix(bucket: usize) -> String {
        format!("{bucket:04}-")
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
    let file = File::create(dir.join(format!("{}{stream:04}.parquet", Aside::prefix(bucket))))?;
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
    /// Reads a bucket, on `threads` threads.
    ///
    /// # Errors
    /// Where a file cannot be read.
    pub fn read(aside: &Aside, bucket: usize, threads: usize) -> Result<Self> {
        let io = |source| Error::Io { path: aside.dir.clone(), source };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&aside.dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            if entry.file_name().to_string_lossy().starts_with(&Aside::prefix(bucket)) {
                files.push(entry.path());
            }
        }
        files.sort();
        let batches: Vec<SpanColumns> =
            in_parallel(&files, threads, |p| batches(p))?.into_iter().flatten().collect();
        let mut stretches = Vec::new();
        for (batch, columns) in batches.iter().enumerate() {
            let mut from = 0;
            for to in 1..=columns.len() {
                if to < columns.len() && columns.trace_id(to) == columns.trace_id(from) {
                    continue;
                }
                if let Some(task) = aside.task(columns.trace_id(from)) {
                    stretches.push(Stretch { task, batch, from, to });
                }
                from = to;
            }
        }
        stretches.sort_unstable();
        Ok(Self { batches, stretches })
    }

    /// The stretches in so many parts of about the same length, each of whole tasks.
    pub fn parts(&self, n: usize) -> Vec<Range<usize>> {
        let size = self.stretches.len().div_ceil(n.max(1)).max(1);
        let mut out = Vec::new();
        let mut from = 0;
        while from < self.stretches.len() {
            let mut to = (from + size).min(self.stretches.len());
            while to < self.stretches.len() && self.stretches[to].task == self.stretches[to - 1].task {
                to += 1;
            }
            out.push(from..to);
            from = to;
        }
        out
    }

    /// Assembles a part, a batch of rows of all tables at a time.
    pub fn assemble(
        self: Arc<Self>,
        part: Range<usize>,
        rules: Arc<Rules>,
    ) -> impl Iterator<Item = EngineResult<RecordBatch>> {
        let mut assembler = Assembler::new(rules);
        let mut at = part.start;
        std::iter::from_fn(move || {
            while at < part.end && !assembler.is_full() {
                let task = self.stretches[at].task;
                let n = self.stretches[at..part.end].iter().take_while(|s| s.task == task).count();
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

fn batches(path: &Path) -> Result<Vec<SpanColumns>> {
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
        let traces = (0..40).map(|n| (trace_key(&trace(n)), (n / 2) as u128)).collect();
        let aside = Arc::new(Aside::new(traces, dir.path().to_owned(), 3));
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
        for b in 0..aside.buckets() {
            let bucket = Bucket::read(&aside, b, 2)?;
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

    #[test]
    fn parts_are_of_whole_tasks_and_miss_none() {
        let stretch = |task| Stretch { task, batch: 0, from: 0, to: 0 };
        for tasks in [vec![], vec![1], vec![1, 1, 1, 2], vec![1, 2, 2, 2, 3, 4, 4], vec![7; 9]] {
            let b = Bucket { batches: Vec::new(), stretches: tasks.into_iter().map(stretch).collect() };
            for n in 1..6 {
                let parts = b.parts(n);
                assert!(parts.len() <= n);
                assert_eq!(parts.iter().map(ExactSizeIterator::len).sum::<usize>(), b.stretches.len());
                for p in parts.iter().skip(1) {
                    assert_ne!(b.stretches[p.start - 1].task, b.stretches[p.start].task);
                }
            }
        }
    }
}
