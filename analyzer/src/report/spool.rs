//! A list of JSON values that is put in order on disk.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use serde_json::Value;

/// Values waiting in a temporary file, each with the key of its place.
pub(super) struct Spool<K> {
    file: BufWriter<File>,
    end: u64,
    /// Key, offset, length.
    index: Vec<(K, u64, usize)>,
}

/// Most bytes read back at once.
const READ: usize = 1 << 20;

impl<K: Ord> Spool<K> {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { file: BufWriter::with_capacity(READ, tempfile::tempfile()?), end: 0, index: Vec::new() })
    }

    pub(super) fn push(&mut self, key: K, value: &Value) -> io::Result<()> {
        let text = serde_json::to_vec(value)?;
        self.file.write_all(&text)?;
        self.index.push((key, self.end, text.len()));
        self.end += text.len() as u64;
        Ok(())
    }

    /// Writes the values as a JSON list, by key, and gives the keys in that order.
    pub(super) fn write(mut self, out: &mut impl Write) -> io::Result<Vec<K>> {
        self.file.flush()?;
        let file = self.file.get_mut();
        self.index.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        out.write_all(b"[")?;
        let mut buffer = Vec::new();
        let mut i = 0;
        while i < self.index.len() {
            // What is in order on disk already is read at once.
            let (mut j, from, mut len) = (i + 1, self.index[i].1, self.index[i].2);
            while j < self.index.len() && self.index[j].1 == from + len as u64 && len < READ {
                len += self.index[j].2;
                j += 1;
            }
            buffer.resize(len, 0);
            file.seek(SeekFrom::Start(from))?;
            file.read_exact(&mut buffer)?;
            let mut at = 0;
            for (k, (.., n)) in self.index[i..j].iter().enumerate() {
                if i + k > 0 {
                    out.write_all(b",")?;
                }
                out.write_all(&buffer[at..at + n])?;
                at += n;
            }
            i = j;
        }
        out.write_all(b"]")?;
        Ok(self.index.into_iter().map(|(k, ..)| k).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_come_back_by_key() -> io::Result<()> {
        let mut s = Spool::new()?;
        for k in [3, 1, 2, 5, 4] {
            s.push(k, &json!({"k": k, "t": "x".repeat(k)}))?;
        }
        let mut out = Vec::new();
        assert_eq!(s.write(&mut out)?, [1, 2, 3, 4, 5]);
        let v: Value = serde_json::from_slice(&out)?;
        let keys: Vec<u64> = v.as_array().into_iter().flatten().filter_map(|x| x["k"].as_u64()).collect();
        assert_eq!(keys, [1, 2, 3, 4, 5]);
        let empty = Spool::<u8>::new()?;
        let mut out = Vec::new();
        empty.write(&mut out)?;
        assert_eq!(out, b"[]");
        Ok(())
    }
}
