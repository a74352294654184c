//! Cutting a stream of bytes into messages: JSON documents, or protobuf frames with a length in front
//! (uvarint, or 4 bytes big-endian). One message is held at a time, none longer than [`MAX_MESSAGE`].

use std::io::{self, Read};

/// The longest single message that is read, in bytes after unpacking.
pub(super) const MAX_MESSAGE: usize = 128 << 20;

const CHUNK: usize = 64 << 10;

/// A reader that can be looked ahead into.
pub(super) struct Source<R> {
    inner: R,
    buf: Vec<u8>,
    at: usize,
    /// Bytes taken so far, from the start of the (unpacked) input.
    pub(super) offset: u64,
    end: bool,
    /// An error of the reader, kept until the bytes before it are used up.
    error: Option<io::Error>,
}

impl<R: Read> Source<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, buf: Vec::new(), at: 0, offset: 0, end: false, error: None }
    }

    /// Makes at least `n` bytes available if the input has them; returns what is there.
    pub(super) fn peek(&mut self, n: usize) -> &[u8] {
        while self.buf.len() - self.at < n && !self.end {
            if self.at > CHUNK {
                self.buf.drain(..self.at);
                self.at = 0;
            }
            let need = n.saturating_sub(self.buf.len() - self.at).max(CHUNK);
            match (&mut self.inner).take(need as u64).read_to_end(&mut self.buf) {
                Ok(0) => self.end = true,
                Ok(_) => {}
                Err(e) => {
                    self.end = true;
                    self.error = Some(e);
                }
            }
        }
        &self.buf[self.at..]
    }

    pub(super) fn take(&mut self, n: usize) {
        self.at += n;
        self.offset += n as u64;
    }

    /// The reader's error, if the input ended by one.
    pub(super) fn error(&mut self) -> Option<io::Error> {
        self.error.take()
    }
}

/// How the messages of a protobuf input are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Single,
    Uvarint,
    BigEndian,
}

/// The tag of `resource_spans`, `resource_logs` and `resource_metrics`, the only field of each request.
const TAG: u8 = 0x0a;

/// Tells the framing by the first bytes. A request starts with [`TAG`]; a length stands in front of it or not.
pub(super) fn framing(head: &[u8]) -> Option<Framing> {
    match head {
        [TAG, TAG, ..] if head.len() >= 12 && uvarint(head) == Some((10, 1)) && inner_ok(&head[1..11]) => {
            Some(Framing::Uvarint)
        }
        [TAG, ..] => Some(Framing::Single),
        [0, 0 | 1.., _, _, TAG, ..] => Some(Framing::BigEndian),
        [0, ..] => Some(Framing::Uvarint),
        _ => match uvarint(head) {
            Some((n, used)) if n >= 2 && head.get(used) == Some(&TAG) => Some(Framing::Uvarint),
            Some((n, used)) if n >= 2 && head.len() == used => Some(Framing::Uvarint),
            _ => None,
        },
    }
}

/// Ten bytes that are a whole request: the length inside must fit.
fn inner_ok(frame: &[u8]) -> bool {
    uvarint(&frame[1..]).is_some_and(|(n, used)| n as usize == frame.len() - 1 - used)
}

/// Value and length of a varint of at most 10 bytes.
pub(crate) fn uvarint(b: &[u8]) -> Option<(u64, usize)> {
    let mut n = 0u64;
    for (i, c) in b.iter().take(10).enumerate() {
        n |= u64::from(c & 0x7f).checked_shl(7 * i as u32)?;
        if c & 0x80 == 0 {
            return Some((n, i + 1));
        }
    }
    None
}

/// Finds the end of the next top-level JSON object in `b`, which starts with `{`.
///
/// `Err(n)`: a new document starts at `n` although this one is not finished, so this one is broken.
/// `Ok(None)`: more bytes are needed.
pub(super) fn json_end(scan: &mut JsonScan, b: &[u8]) -> Result<Option<usize>, usize> {
    while scan.i < b.len() {
        let c = b[scan.i];
        if scan.string {
            match c {
                b'\\' => scan.i += 1,
                b'"' => scan.string = false,
                // A raw line break cannot stand in a JSON string.
                b'\n' if starts_document(&b[scan.i + 1..]) => return Err(scan.i + 1),
                _ => {}
            }
        } else {
            match c {
                b'"' => scan.string = true,
                b'{' | b'[' => scan.depth += 1,
                b'}' | b']' => {
                    scan.depth = scan.depth.saturating_sub(1);
                    if scan.depth == 0 {
                        return Ok(Some(scan.i + 1));
                    }
                }
                b'\n' if starts_document(&b[scan.i + 1..]) => return Err(scan.i + 1),
                _ => {}
            }
        }
        scan.i += 1;
    }
    Ok(None)
}

#[derive(Default)]
pub(super) struct JsonScan {
    i: usize,
    depth: usize,
    string: bool,
}

fn starts_document(b: &[u8]) -> bool {
    b.starts_with(b"{\"resource")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framings_are_told_by_the_first_bytes() {
        let msg = [TAG, 3, 0x12, 1, 0];
        assert_eq!(framing(&msg), Some(Framing::Single));
        assert_eq!(framing(&[&[5], &msg[..]].concat()), Some(Framing::Uvarint));
        assert_eq!(framing(&[&[0, 0, 0, 5], &msg[..]].concat()), Some(Framing::BigEndian));
        assert_eq!(framing(b"PAR1abcdef"), None);
        // A request of exactly ten bytes, with its length in front.
        let ten = [TAG, 8, 0x12, 6, 0, 0, 0, 0, 0, 0];
        assert_eq!(framing(&[&[10], &ten[..], &[5]].concat()), Some(Framing::Uvarint));
    }

    #[test]
    fn a_broken_document_ends_where_the_next_line_starts_one() {
        let b = b"{\"resourceSpans\":[{\"a\":\"x\n{\"resourceSpans\":[]}\n";
        assert_eq!(json_end(&mut JsonScan::default(), b), Err(26));
        let ok = b"{\"a\":\"}\\\"\",\n \"b\":[{}]} rest";
        assert_eq!(json_end(&mut JsonScan::default(), ok), Ok(Some(22)));
    }
}
