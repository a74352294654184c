//! Journal segments: Arrow IPC streams of encoded rows.
//!
//! ```text
//! <journal>/<collector>/lock        held by the process that writes this folder
//! <journal>/<collector>/<n>.arrows  segment n, an Arrow IPC stream
//! ```
//!
//! A stream has the columns of [`columns`]; a row of it is one request: the number of its rows, a checksum, and the rows
//! themselves as one IPC message in the layout of `spans/`. Encoding is done where requests are read, in parallel; what is left
//! for the one writer is to append. The checksum tells a damaged request from a whole one, which IPC alone does not.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{AsArray, LargeBinaryArray, RecordBatch, UInt32Array};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt32Type};
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::read_record_batch;
use arrow::ipc::writer::{
    DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions, StreamWriter, write_message,
};
use arrow::ipc::{Message, root_as_message};
use baton_record::schema;
use baton_record::span::Span;

/// Ending of a segment's file name.
pub const EXTENSION: &str = "arrows";

/// The columns of a segment.
pub fn columns() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("rows", DataType::UInt32, false),
        Field::new("crc32", DataType::UInt32, false),
        Field::new("message", DataType::LargeBinary, false),
    ]))
}

/// The rows of one request, encoded.
#[derive(Debug)]
pub struct Entry {
    /// Number of rows.
    pub rows: u32,
    crc32: u32,
    message: Vec<u8>,
}

impl Entry {
    /// Encodes rows. They are put in the order of the store, so that what a trace's items hold stands once.
    ///
    /// # Errors
    /// Arrow's own, should the columns not fit the schema (a defect).
    pub fn encode(rows: Vec<Span>) -> Result<Self, ArrowError> {
        // A row is large, so its place is sorted and not itself.
        let mut rows: Vec<&Span> = rows.iter().collect();
        rows.sort_by(|a, b| (&a.trace_id, a.start, &a.span_id).cmp(&(&b.trace_id, b.start, &b.span_id)));
        let batch = schema::Encoder::default().encode_refs(&rows)?;
        let options = IpcWriteOptions::default();
        let mut tracker = DictionaryTracker::new(false);
        let (_, encoded) = IpcDataGenerator::default().encode(
            &batch,
            &mut tracker,
            &options,
            &mut IpcWriteContext::default(),
        )?;
        let mut message = Vec::with_capacity(encoded.ipc_message.len() + encoded.arrow_data.len() + 64);
        write_message(&mut message, encoded, &options)?;
        let rows = u32::try_from(batch.num_rows()).unwrap_or(u32::MAX);
        Ok(Self { rows, crc32: crc32fast::hash(&message), message })
    }

    /// Bytes it takes in the journal, roughly.
    pub fn len(&self) -> usize {
        self.message.len()
    }

    /// True where it holds no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }
}

/// A segment that is being written.
pub struct Segment {
    path: PathBuf,
    writer: StreamWriter<File>,
    /// Length of the file up to the last whole batch.
    good: u64,
    /// Rows in it.
    pub rows: u64,
}

impl Segment {
    /// Makes a segment file. Its name stays after a crash only once it holds something: the folder is synced with the
    /// first batch.
    ///
    /// # Errors
    /// Where the file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).read(true).create_new(true).open(path)?;
        let writer = StreamWriter::try_new(file, &columns()).map_err(other);
        let mut writer = match writer {
            Ok(w) => w,
            Err(e) => {
                // Nothing was acknowledged from it.
                let _ = fs::remove_file(path);
                return Err(e);
            }
        };
        let good = writer.get_mut().stream_position()?;
        Ok(Self { path: path.to_owned(), writer, good, rows: 0 })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.good
    }

    /// True where it holds no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Appends entries as one batch and syncs it where `sync` is set. Where that fails, the file is cut back to what it held.
    ///
    /// # Errors
    /// The file system's; none of the entries counts then, and the segment must not be written again.
    pub fn append(&mut self, entries: &[Entry], sync: bool) -> io::Result<()> {
        let batch = RecordBatch::try_new(
            columns(),
            vec![
                Arc::new(UInt32Array::from_iter_values(entries.iter().map(|e| e.rows))),
                Arc::new(UInt32Array::from_iter_values(entries.iter().map(|e| e.crc32))),
                Arc::new(LargeBinaryArray::from_iter_values(entries.iter().map(|e| &e.message))),
            ],
        )
        .map_err(other)?;
        let first = self.rows == 0;
        let done = self.writer.write(&batch).map_err(other).and_then(|()| {
            if !sync {
                return Ok(());
            }
            self.writer.get_mut().sync_data()?;
            if first { sync_dir(&self.path) } else { Ok(()) }
        });
        let file = self.writer.get_mut();
        match done.and_then(|()| file.stream_position()) {
            Ok(end) => {
                self.good = end;
                self.rows += entries.iter().map(|e| u64::from(e.rows)).sum::<u64>();
                Ok(())
            }
            Err(e) => {
                // Where this fails too, a torn tail is left, which reading leaves out.
                let good = self.good;
                let _ = file.set_len(good).and_then(|()| file.seek(SeekFrom::Start(good)));
                Err(e)
            }
        }
    }
}

fn sync_dir(file: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(dir) = file.parent() {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// An Arrow error as an I/O error, with the file system's own kind where it is one.
fn other(e: ArrowError) -> io::Error {
    match e {
        ArrowError::IoError(_, e) => e,
        e => io::Error::other(e),
    }
}

/// What a segment held.
#[derive(Debug, Default)]
pub struct Read {
    /// Rows, batch by batch.
    pub batches: Vec<RecordBatch>,
    /// Damage that is no torn tail: where, and what.
    pub damage: Option<String>,
    /// Bytes at the end that are no whole batch. Of a segment that was open when its collector was killed they are a torn tail;
    /// of any other they are damage.
    pub tail: usize,
}

/// Reads a segment. What is at its end and no whole batch is left out and counted; other damage is told, with all that could be
/// read before and after it.
///
/// # Errors
/// Where the file cannot be opened or read.
pub fn read(path: &Path) -> io::Result<Read> {
    Ok(read_bytes(fs::read(path)?))
}

/// Reads a segment's bytes.
pub fn read_bytes(bytes: Vec<u8>) -> Read {
    let all = Buffer::from_vec(bytes);
    let mut out = Read::default();
    let mut at = match header(&all) {
        Ok(end) if starts(&all, end) => end,
        Ok(end) if end == all.len() => return out,
        // The header's length is damage: what follows is looked for.
        Ok(_) => 0,
        Err(_) if all.len() < HEADER => {
            out.tail = all.len();
            return out;
        }
        Err(e) => {
            out.damage = Some(format!("byte 0: {e}"));
            0
        }
    };
    while at < all.len() {
        match batch(&all, at) {
            Ok((batch, end)) => {
                for k in 0..batch.num_rows() {
                    match entry(&batch, k) {
                        Ok(rows) => out.batches.push(rows),
                        Err(e) => {
                            out.damage.get_or_insert(format!("batch at byte {at}, request {k}: {e}"));
                        }
                    }
                }
                at = end;
            }
            // The tail is torn where no whole batch follows.
            Err(e) => match (at + 1..all.len()).find(|i| starts(&all, *i) && batch(&all, *i).is_ok()) {
                None => {
                    out.tail = all.len() - at;
                    break;
                }
                Some(next) => {
                    out.damage.get_or_insert(format!("batch at byte {at}: {e}"));
                    at = next;
                }
            },
        }
    }
    out
}

/// What every IPC message starts with.
const MARKER: [u8; 4] = [0xff; 4];
/// A stream's header is at least so long.
const HEADER: usize = 300;
/// A message's head is at most so long: it says where buffers are, and holds none.
const MAX_HEAD: usize = 1 << 20;

fn starts(all: &Buffer, at: usize) -> bool {
    all.get(at..at + 4) == Some(&MARKER)
}

fn bad(what: &str) -> ArrowError {
    ArrowError::IpcError(what.to_owned())
}

/// The message at a place: where its head and its body are.
fn message(all: &Buffer, at: usize) -> Result<(Message<'_>, std::ops::Range<usize>), ArrowError> {
    if !starts(all, at) {
        return Err(bad("no message starts here"));
    }
    let len = all.get(at + 4..at + 8).ok_or_else(|| bad("too short"))?;
    let len = u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize;
    if len > MAX_HEAD {
        return Err(bad("its head is too long"));
    }
    let body = at + 8 + len;
    let head = all.get(at + 8..body).ok_or_else(|| bad("its head is cut off"))?;
    let head = root_as_message(head).map_err(|e| ArrowError::IpcError(e.to_string()))?;
    let end = usize::try_from(head.bodyLength()).ok().and_then(|n| body.checked_add(n));
    match end {
        Some(end) if end <= all.len() => Ok((head, body..end)),
        _ => Err(bad("its body is cut off")),
    }
}

/// Checks the schema at the start of a stream; gives its end.
fn header(all: &Buffer) -> Result<usize, ArrowError> {
    let (head, body) = message(all, 0)?;
    let found = head.header_as_schema().ok_or_else(|| bad("no schema"))?;
    if guarded(|| fb_to_schema(found))? != *columns() {
        return Err(bad("an Arrow stream of other columns"));
    }
    Ok(body.end)
}

/// The batch at a place, and its end.
fn batch(all: &Buffer, at: usize) -> Result<(RecordBatch, usize), ArrowError> {
    rows(all, at, columns())
}

fn rows(all: &Buffer, at: usize, schema: SchemaRef) -> Result<(RecordBatch, usize), ArrowError> {
    let (head, body) = message(all, at)?;
    let found = head.header_as_record_batch().ok_or_else(|| bad("no batch of rows"))?;
    let inside = |b: &arrow::ipc::Buffer| {
        let (from, len) = (usize::try_from(b.offset()).ok()?, usize::try_from(b.length()).ok()?);
        from.checked_add(len).filter(|end| *end <= body.len())
    };
    if found.buffers().is_none_or(|b| b.iter().any(|b| inside(b).is_none())) {
        return Err(bad("a buffer lies outside of its body"));
    }
    // Nothing of a segment is packed. Where damage says so, the length to unpack to is damage too, and could be any.
    if found.compression().is_some() {
        return Err(bad("its body is said to be packed"));
    }
    let bytes = all.slice_with_length(body.start, body.len());
    let batch =
        guarded(|| read_record_batch(&bytes, found, schema, &HashMap::new(), None, &head.version()))??;
    Ok((batch, body.end))
}

/// Arrow's decoders are made for what a writer wrote; what damage makes of a head may bring them to panic.
fn guarded<T>(decode: impl FnOnce() -> T) -> Result<T, ArrowError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(decode)).map_err(|_| bad("its head is damaged"))
}

fn entry(batch: &RecordBatch, k: usize) -> Result<RecordBatch, ArrowError> {
    let announced = batch.column(0).as_primitive::<UInt32Type>().value(k);
    let crc32 = batch.column(1).as_primitive::<UInt32Type>().value(k);
    let messages = batch.column(2).as_binary::<i64>();
    if crc32fast::hash(messages.value(k)) != crc32 {
        return Err(bad("its checksum does not fit"));
    }
    let o = messages.value_offsets();
    let (from, to) = (o[k] as usize, o[k + 1] as usize);
    let (decoded, _) = rows(&messages.values().slice_with_length(from, to - from), 0, schema::schema())?;
    if decoded.num_rows() != announced as usize {
        return Err(ArrowError::IpcError(format!(
            "holds {} rows, announces {announced}",
            decoded.num_rows()
        )));
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn span(id: u64) -> Span {
        Span {
            trace_id: format!("{:032x}", id / 3 + 1),
            span_id: format!("{id:016x}"),
            name: format!("span {id}"),
            ..Span::default()
        }
    }

    /// A segment of three batches, of one, two and one requests; the place where each batch starts; and the rows of all.
    fn segment(path: &Path) -> Result<(Vec<u64>, u64), Box<dyn std::error::Error>> {
        let mut s = Segment::create(path)?;
        let mut places = Vec::new();
        for requests in [&[(0, 5u64)][..], &[(5, 6), (6, 9)], &[(9, 20)]] {
            places.push(s.len());
            let entries: Result<Vec<Entry>, _> =
                requests.iter().map(|&(from, to)| Entry::encode((from..to).map(span).collect())).collect();
            s.append(&entries?, true)?;
        }
        Ok((places, s.rows))
    }

    fn ids(read: &Read) -> Vec<String> {
        let all = read.batches.iter();
        all.flat_map(|b| b.column(1).as_string_view().iter().flatten().map(str::to_owned)).collect()
    }

    #[test]
    fn what_is_appended_is_read() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("1.arrows");
        let (_, rows) = segment(&path)?;
        let read = read(&path)?;
        assert_eq!(rows, 20);
        assert_eq!(read.damage, None);
        assert_eq!(ids(&read), (0..20).map(|i| format!("{i:016x}")).collect::<Vec<_>>());
        // It is an ordinary Arrow stream.
        let stream = arrow::ipc::reader::StreamReader::try_new(File::open(&path)?, None)?;
        assert_eq!(stream.map(|b| b.map(|b| b.num_rows())).collect::<Result<Vec<_>, _>>()?, [1, 2, 1]);
        Ok(())
    }

    #[test]
    fn a_tail_torn_anywhere_leaves_the_whole_batches() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("1.arrows");
        let (places, _) = segment(&path)?;
        let bytes = fs::read(&path)?;
        for cut in (0..bytes.len()).step_by(97) {
            let read = read_bytes(bytes[..cut].to_vec());
            let whole = places[1..].iter().filter(|p| **p <= cut as u64).count();
            assert_eq!(ids(&read).len(), [0, 5, 9][whole], "cut at {cut}");
            let torn = cut > 0 && !places.contains(&(cut as u64));
            assert_eq!(read.tail > 0, torn, "cut at {cut}");
            assert_eq!(read.damage, None, "cut at {cut}");
        }
        Ok(())
    }

    #[test]
    fn no_byte_of_the_header_makes_reading_panic() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("1.arrows");
        let (places, _) = segment(&path)?;
        let whole = fs::read(&path)?;
        for at in 0..places[0] as usize {
            for other in [0, 1, 0x7f, 0xff] {
                let mut hurt = whole.clone();
                hurt[at] = other;
                let read = read_bytes(hurt);
                assert_eq!(ids(&read).len(), 20, "byte {at} is {other}");
            }
        }
        Ok(())
    }

    #[test]
    fn nothing_is_unpacked() -> Outcome {
        let numbers = || Arc::new(UInt32Array::from_iter_values(0..1000));
        let message = Arc::new(LargeBinaryArray::from_iter_values([[0u8; 100]; 1000]));
        let rows = RecordBatch::try_new(columns(), vec![numbers(), numbers(), message])?;
        for packed in [None, Some(arrow::ipc::CompressionType::ZSTD)] {
            let options = IpcWriteOptions::default().try_with_compression(packed)?;
            let mut w = StreamWriter::try_new_with_options(Vec::new(), &columns(), options)?;
            w.write(&rows)?;
            let all = Buffer::from_vec(w.into_inner()?);
            let read = batch(&all, header(&all)?).map(|(b, _)| b.num_rows()).map_err(|e| e.to_string());
            match packed {
                None => assert_eq!(read, Ok(1000)),
                Some(_) => assert!(read.is_err_and(|e| e.contains("packed"))),
            }
        }
        Ok(())
    }

    #[test]
    fn rows_of_the_last_batch_are_not_lost_without_a_word_either() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("1.arrows");
        let (places, _) = segment(&path)?;
        let bytes = fs::read(&path)?;
        let mut ended = 0;
        for at in (places[2] as usize..bytes.len()).step_by(61) {
            let mut hurt = bytes.clone();
            hurt[at] ^= 0x55;
            let read = read_bytes(hurt);
            let n = ids(&read).len();
            assert!(n == 20 || read.damage.is_some() || read.tail > 0, "byte {at}: {n} rows and no word");
            ended += usize::from(read.tail > 0);
        }
        assert!(ended > 0);
        Ok(())
    }

    #[test]
    fn damage_is_told_and_the_rest_is_read() -> Outcome {
        let dir = tempfile::tempdir()?;
        let path = dir.path().join("1.arrows");
        let (places, _) = segment(&path)?;
        let bytes = fs::read(&path)?;
        let mut told = 0;
        for at in (0..places[2] as usize).step_by(131) {
            let mut hurt = bytes.clone();
            hurt[at] ^= 0x55;
            let read = read_bytes(hurt);
            let n = ids(&read).len();
            // Padding and unused bytes may change unnoticed; rows are lost only with a word about it.
            assert!(n == 20 || read.damage.is_some(), "byte {at}: {n} rows and no word");
            assert!(n >= 11, "byte {at}: only {n} rows");
            told += usize::from(read.damage.is_some());
        }
        assert!(told > 20, "{told}");
        Ok(())
    }
}
