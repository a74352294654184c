//! Counts distinct ids exactly, within bounded memory: what does not fit is sorted on disk.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

use sha2::{Digest, Sha256};

/// Ids held in memory: 32 MiB.
const HELD: usize = 2 << 20;

/// Ids, and how many of them.
#[derive(Debug)]
pub(super) struct Tally {
    held: Vec<u128>,
    limit: usize,
    /// Sorted, in files without a name: nothing is left of them when this ends.
    runs: Vec<File>,
    added: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { held: Vec::new(), limit: HELD, runs: Vec::new(), added: 0 }
    }
}

impl Tally {
    /// Adds an id, made of parts. 128 bits of SHA-256 stand for it.
    pub(super) fn add(&mut self, parts: &[&str]) -> io::Result<()> {
        let mut hash = Sha256::new();
        for p in parts {
            hash.update((p.len() as u64).to_le_bytes());
            hash.update(p);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hash.finalize()[..16]);
        self.held.push(u128::from_be_bytes(id));
        self.added += 1;
        if self.held.len() >= self.limit { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> io::Result<()> {
        self.held.sort_unstable();
        let mut out = BufWriter::new(tempfile::tempfile()?);
        for id in self.held.drain(..) {
            out.write_all(&id.to_be_bytes())?;
        }
        let mut file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        self.runs.push(file);
        Ok(())
    }

    /// How many ids were added, and how many different ones.
    pub(super) fn finish(mut self) -> io::Result<(u64, u64)> {
        self.held.sort_unstable();
        let mut runs: Vec<BufReader<File>> = self.runs.into_iter().map(BufReader::new).collect();
        let mut held = self.held.into_iter();
        // The next id of each file and, under the last number, of memory.
        let mut next = |run: usize| -> io::Result<Option<u128>> {
            let Some(file) = runs.get_mut(run) else { return Ok(held.next()) };
            let mut id = [0; 16];
            match file.read_exact(&mut id) {
                Ok(()) => Ok(Some(u128::from_be_bytes(id))),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
                Err(e) => Err(e),
            }
        };
        let mut heap = BinaryHeap::new();
        let mut run = 0;
        while let Some(id) = next(run)? {
            heap.push(Reverse((id, run)));
            run += 1;
        }
        let (mut distinct, mut last) = (0, None);
        while let Some(Reverse((id, run))) = heap.pop() {
            distinct += u64::from(last.replace(id) != Some(id));
            if let Some(id) = next(run)? {
                heap.push(Reverse((id, run)));
            }
        }
        Ok((self.added, distinct))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_in_memory_is_counted_all_the_same() {
        for limit in [1, 3, 7, 1000] {
            let mut t = Tally { limit, ..Tally::default() };
            for n in 0..60 {
                t.add(&["trace", &(n % 17).to_string()]).unwrap();
            }
            // Parts do not run into each other.
            t.add(&["trac", "e1"]).unwrap();
            assert_eq!(t.finish().unwrap(), (61, 18), "{limit}");
        }
        assert_eq!(Tally::default().finish().unwrap(), (0, 0));
    }
}
