//! Merging sorted files into one.
//!
//! Always: the rows of the result are those of the inputs, sorted by trace, start and span; rows equal in all columns but
//! `contents` stand once. Rows of equal ids that differ are all kept: which one counts, assembly says. What the items of a trace
//! hold stands once per trace: each entry of the inputs' `contents` on the first row that had it, or, where that row is dropped,
//! on the row equal to it.
//! Columns are moved as they are; no row is decoded. In memory are one batch per input, the rows of one batch of output and
//! what the Parquet writer holds until its group of rows is whole.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, Int64Array, ListArray, RecordBatch, StringViewArray,
    TimestampNanosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::interleave;
use arrow::datatypes::Field;
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use baton_record::schema;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use sha2::{Digest, Sha256};

use crate::store::{self, Writer};

/// Rows of a batch, read or written.
pub(super) const BATCH: usize = 1024;

/// Why a merge failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// An input, by its position, is not what it should be.
    Input(usize, String),
    /// The result could not be written.
    Output(store::Error),
}

impl From<store::Error> for Failure {
    fn from(e: store::Error) -> Self {
        Self::Output(e)
    }
}

/// Opens a file of rows of this layout; says how many it has.
pub(super) fn open(path: &Path, batch: usize) -> Result<(ParquetRecordBatchReader, usize), String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|e| e.to_string())?;
    if reader.schema().fields() != schema::schema().fields() {
        let wrong = schema::schema()
            .fields()
            .iter()
            .find(|f| reader.schema().field_with_name(f.name()).ok() != Some(f.as_ref()))
            .map_or_else(|| "order or number of columns".to_owned(), |f| format!("column {}", f.name()));
        return Err(format!("schema differs: {wrong}"));
    }
    let rows = usize::try_from(reader.metadata().file_metadata().num_rows()).map_err(|e| e.to_string())?;
    Ok((reader.with_batch_size(batch).build().map_err(|e| e.to_string())?, rows))
}

/// The columns that rows are sorted by.
#[derive(Clone)]
pub(super) struct Keys {
    trace: StringViewArray,
    start: TimestampNanosecondArray,
    span: StringViewArray,
}

/// Where a row stands; the order of rows in a file.
pub(super) type Key = (String, Option<i64>, String);

impl Keys {
    /// The columns of a batch of [`schema::schema`].
    pub(super) fn of(batch: &RecordBatch) -> Option<Self> {
        Some(Self {
            trace: batch.column_by_name("trace_id")?.as_string_view_opt()?.clone(),
            start: batch.column_by_name("start")?.as_primitive_opt()?.clone(),
            span: batch.column_by_name("span_id")?.as_string_view_opt()?.clone(),
        })
    }

    /// The key of a row.
    pub(super) fn at(&self, row: usize) -> Key {
        let start = self.start.is_valid(row).then(|| self.start.value(row));
        (self.trace.value(row).to_owned(), start, self.span.value(row).to_owned())
    }
}

struct Cursor {
    /// Gone at the end of the file: a reader holds megabytes, and most files are read in one batch.
    reader: Option<ParquetRecordBatchReader>,
    /// Rows not read yet.
    left: usize,
    keys: Option<Keys>,
    /// The batch in [`Merging::batches`].
    slot: usize,
    row: usize,
    rows: usize,
}

/// A row, or an entry of a list, in one of the batches.
type At = (usize, usize);

struct Merging {
    cursors: Vec<Cursor>,
    /// Current batches of the inputs, and those that rows of the next output stand in.
    batches: Vec<RecordBatch>,
    heap: BinaryHeap<Reverse<(Key, usize)>>,
    /// Rows of equal key, not looked at yet.
    run: Vec<At>,
    key: Key,
    /// Rows of the next output.
    out: Vec<At>,
    /// Their `contents`: entries, and where the list of each row ends.
    contents: Vec<At>,
    ends: Vec<i32>,
    /// Contents of the current trace.
    seen: HashSet<[u8; 16]>,
    /// For comparing rows, of all columns but `contents`.
    converter: RowConverter,
    rows: u64,
}

/// Merges files, each read so many rows at once, into one of `dir` that says what it `replaces`. Says its path and its number of rows.
pub(super) fn merge(
    inputs: &[(&Path, usize)],
    dir: &Path,
    replaces: &[String],
) -> Result<(PathBuf, u64), Failure> {
    let mut rows = 0;
    let (path, _) = store::put(dir, "", replaces, |w| {
        let failed = |source| store::Error::Parquet { path: dir.to_owned(), source };
        let mut m = Merging::open(inputs)?;
        while m.step()? {
            if m.out.len() >= BATCH {
                m.flush(w).map_err(failed)?;
            }
        }
        m.flush(w).map_err(failed)?;
        rows = m.rows;
        Ok::<_, Failure>(())
    })?;
    Ok((path, rows))
}

/// A failure of Arrow itself: a defect, or no memory.
fn arrow_failed(e: ArrowError) -> Failure {
    Failure::Output(store::Error::Parquet { path: PathBuf::new(), source: e.into() })
}

/// Position of `contents`: the last column.
fn contents_at() -> usize {
    schema::COLUMNS.len() - 1
}

impl Merging {
    fn open(inputs: &[(&Path, usize)]) -> Result<Self, Failure> {
        let fields = schema::schema();
        let compared = fields.fields().iter().take(contents_at());
        let converter = RowConverter::new(compared.map(|f| SortField::new(f.data_type().clone())).collect())
            .map_err(arrow_failed)?;
        let mut m = Self {
            cursors: Vec::with_capacity(inputs.len()),
            batches: Vec::new(),
            heap: BinaryHeap::new(),
            run: Vec::new(),
            key: Key::default(),
            out: Vec::new(),
            contents: Vec::new(),
            ends: Vec::new(),
            seen: HashSet::new(),
            converter,
            rows: 0,
        };
        for (i, (path, batch)) in inputs.iter().enumerate() {
            let (reader, left) = open(path, *batch).map_err(|e| Failure::Input(i, e))?;
            m.cursors.push(Cursor { reader: Some(reader), left, keys: None, slot: 0, row: 0, rows: 0 });
            if let Some(key) = m.next_key(i)? {
                m.heap.push(Reverse((key, i)));
            }
        }
        Ok(m)
    }

    /// The key of an input's row, reading on where its batch is used up; `None` at its end.
    fn next_key(&mut self, i: usize) -> Result<Option<Key>, Failure> {
        let c = &mut self.cursors[i];
        while c.row == c.rows {
            c.keys = None;
            if c.left == 0 {
                return Ok(None);
            }
            let batch = match c.reader.as_mut().and_then(Iterator::next) {
                Some(batch) => batch.map_err(|e| Failure::Input(i, e.to_string()))?,
                None => return Err(Failure::Input(i, format!("{} rows are missing", c.left))),
            };
            c.left = c.left.saturating_sub(batch.num_rows());
            if c.left == 0 {
                c.reader = None;
            }
            (c.keys, c.row, c.rows) = (Keys::of(&batch), 0, batch.num_rows());
            c.slot = self.batches.len();
            self.batches.push(batch);
        }
        Ok(c.keys.as_ref().map(|k| k.at(c.row)))
    }

    /// Takes the next row; false at the end.
    fn step(&mut self) -> Result<bool, Failure> {
        let Some(Reverse((key, i))) = self.heap.pop() else {
            self.close_run()?;
            return Ok(false);
        };
        if key != self.key {
            self.close_run()?;
            if key.0 != self.key.0 {
                self.seen.clear();
            }
            self.key = key;
        }
        let c = &mut self.cursors[i];
        self.run.push((c.slot, c.row));
        c.row += 1;
        if let Some(next) = self.next_key(i)? {
            if next < self.key {
                return Err(Failure::Input(i, "rows are not sorted".to_owned()));
            }
            self.heap.push(Reverse((next, i)));
        }
        Ok(true)
    }

    /// Puts rows of equal key out, equal ones once.
    fn close_run(&mut self) -> Result<(), Failure> {
        let run = std::mem::take(&mut self.run);
        if let [row] = run[..] {
            self.emit(row, &run);
            return Ok(());
        }
        let mut different: Vec<Vec<At>> = Vec::new();
        let mut by_digest: HashMap<[u8; 32], usize> = HashMap::new();
        for at in run {
            let n = *by_digest.entry(self.digest(at).map_err(arrow_failed)?).or_insert(different.len());
            match different.get_mut(n) {
                Some(equal) => equal.push(at),
                None => different.push(vec![at]),
            }
        }
        for equal in different {
            self.emit(equal[0], &equal);
        }
        Ok(())
    }

    fn digest(&self, (slot, row): At) -> Result<[u8; 32], ArrowError> {
        let columns: Vec<ArrayRef> =
            self.batches[slot].columns()[..contents_at()].iter().map(|c| c.slice(row, 1)).collect();
        let rows = self.converter.convert_columns(&columns)?;
        Ok(Sha256::digest(rows.row(0).data()).into())
    }

    /// Puts a row out, with what is new in the contents of all rows equal to it.
    fn emit(&mut self, row: At, equal: &[At]) {
        for (slot, r) in equal {
            let list: &ListArray = self.batches[*slot].column(contents_at()).as_list();
            if list.is_null(*r) {
                continue;
            }
            let (from, to) = (list.value_offsets()[*r], list.value_offsets()[*r + 1]);
            for i in from as usize..to as usize {
                if self.seen.insert(content_digest(list, i)) {
                    self.contents.push((*slot, i));
                }
            }
        }
        self.out.push(row);
        self.ends.push(i32::try_from(self.contents.len()).unwrap_or(i32::MAX));
    }

    /// Writes the rows put out so far and lets go of batches that are used up. Between two runs, or at the end.
    fn flush(&mut self, w: &mut Writer<'_>) -> Result<(), parquet::errors::ParquetError> {
        if self.out.is_empty() {
            return Ok(());
        }
        let mut columns = Vec::with_capacity(contents_at() + 1);
        for c in 0..contents_at() {
            let parts: Vec<&dyn Array> = self.batches.iter().map(|b| b.column(c).as_ref()).collect();
            columns.push(interleave(&parts, &self.out)?);
        }
        columns.push(self.take_contents()?);
        let batch = RecordBatch::try_new(schema::schema(), columns)?;
        self.rows += batch.num_rows() as u64;
        w.write(&batch)?;
        self.out.clear();
        // Rows of a run not closed yet still stand in their batches.
        let mut kept: Vec<RecordBatch> = Vec::new();
        let mut moved: HashMap<usize, usize> = HashMap::new();
        let mut keep = |slot: &mut usize| {
            *slot = *moved.entry(*slot).or_insert_with(|| {
                kept.push(self.batches[*slot].clone());
                kept.len() - 1
            });
        };
        self.run.iter_mut().for_each(|(slot, _)| keep(slot));
        self.cursors.iter_mut().filter(|c| c.row < c.rows).for_each(|c| keep(&mut c.slot));
        self.batches = kept;
        Ok(())
    }

    fn take_contents(&mut self) -> Result<ArrayRef, ArrowError> {
        let lists: Vec<&ListArray> =
            self.batches.iter().map(|b| b.column(contents_at()).as_list::<i32>()).collect();
        let parts: Vec<&dyn Array> = lists.iter().map(|l| l.values().as_ref()).collect();
        let values = interleave(&parts, &self.contents)?;
        self.contents.clear();
        let offsets: Vec<i32> = std::iter::once(0).chain(self.ends.drain(..)).collect();
        // Nothing new is NULL, as the collector writes it.
        let valid: NullBuffer = offsets.windows(2).map(|o| o[0] < o[1]).collect::<Vec<bool>>().into();
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        Ok(Arc::new(ListArray::try_new(field, OffsetBuffer::new(offsets.into()), values, Some(valid))?))
    }
}

/// Tells entries of `contents` apart, by all they hold: one item may have come in two spellings, and both are kept.
fn content_digest(list: &ListArray, i: usize) -> [u8; 16] {
    let entry = list.values().as_struct();
    let hash: &Int64Array = entry.column(0).as_primitive();
    let mut digest = Sha256::new();
    digest.update(hash.value(i).to_le_bytes());
    let mut put = |value: Option<&[u8]>| {
        digest.update(value.map_or(u64::MAX, |v| v.len() as u64).to_le_bytes());
        digest.update(value.unwrap_or_default());
    };
    let bytes = |a: &BinaryViewArray| a.is_valid(i).then(|| a.value(i).to_vec());
    put(bytes(entry.column(1).as_binary_view()).as_deref());
    put(bytes(entry.column(2).as_binary_view()).as_deref());
    let text = entry.column(3).as_string_view();
    put(text.is_valid(i).then(|| text.value(i).as_bytes()));
    let mut out = [0; 16];
    out.copy_from_slice(&digest.finalize()[..16]);
    out
}
