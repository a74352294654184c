//! What was made of texts that came before. A history is sent again with every call, so most of what comes was seen.
//!
//! Bounded in bytes, and shared by the threads that read under one configuration and key. Texts are known by 128 bits of two
//! hashes with random seeds, so that no text is taken for another one: with 2^32 texts the chance of it is 2^-65. A hit
//! gives what the text gives by itself, so rows do not depend on what came before.

use std::collections::HashMap;
use std::hash::Hasher;
use std::mem;
use std::sync::{Mutex, PoisonError};

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;

/// Locks, so that threads seldom wait for each other.
const SHARDS: usize = 16;
/// What an entry takes beside its value, about.
const ENTRY: usize = 128;

/// A text's identity, with what is asked about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(u64, u64);

/// What was made of texts, up to a number of bytes.
pub(crate) struct Memo<V> {
    seeds: [(u64, SharedSeed); 2],
    shards: Vec<Mutex<Shard<V>>>,
    /// Bytes of one generation of one shard.
    limit: usize,
}

/// Two generations: what is asked for again moves to the young one; when that is full, it becomes the old one.
struct Shard<V> {
    young: HashMap<Key, (V, usize), foldhash::fast::RandomState>,
    old: HashMap<Key, (V, usize), foldhash::fast::RandomState>,
    bytes: usize,
}

impl<V: Clone> Memo<V> {
    /// Holds at most about so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let seed = || {
            let mut random = [0; 16];
            // Without randomness of the system foldhash has its own, of addresses and times.
            if getrandom::fill(&mut random).is_err() {
                use std::hash::BuildHasher;
                let state = foldhash::quality::RandomState::default();
                random = u128::from(state.hash_one(0)).to_le_bytes();
            }
            let n = u128::from_le_bytes(random);
            (n as u64, SharedSeed::from_u64((n >> 64) as u64))
        };
        let shard = || Mutex::new(Shard { young: HashMap::default(), old: HashMap::default(), bytes: 0 });
        Self {
            seeds: [seed(), seed()],
            shards: (0..SHARDS).map(|_| shard()).collect(),
            limit: bytes / SHARDS / 2,
        }
    }

    /// The key of a text; `what` tells apart what is made of it.
    pub(crate) fn key(&self, what: u8, text: &str) -> Key {
        let hash = |(first, shared): &(u64, SharedSeed)| {
            let mut h = FoldHasher::with_seed(*first, shared);
            h.write(text.as_bytes());
            h.write_u8(what);
            h.write_usize(text.len());
            h.finish()
        };
        Key(hash(&self.seeds[0]), hash(&self.seeds[1]))
    }

    fn shard(&self, key: Key) -> std::sync::MutexGuard<'_, Shard<V>> {
        self.shards[(key.0 >> 60) as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known.
    pub(crate) fn get(&self, key: Key) -> Option<V> {
        let mut shard = self.shard(key);
        if let Some((v, _)) = shard.young.get(&key) {
            return Some(v.clone());
        }
        let (v, bytes) = shard.old.remove(&key)?;
        shard.put(key, v.clone(), bytes, self.limit);
        Some(v)
    }

    /// Remembers a value that takes so many bytes. One that would push out a good part of the others is not remembered.
    pub(crate) fn put(&self, key: Key, value: V, bytes: usize) {
        let bytes = bytes + ENTRY;
        if bytes <= self.limit / 4 {
            self.shard(key).put(key, value, bytes, self.limit);
        }
    }
}

impl<V> Shard<V> {
    fn put(&mut self, key: Key, value: V, bytes: usize, limit: usize) {
        if self.bytes + bytes > limit {
            self.old = mem::take(&mut self.young);
            self.bytes = 0;
        }
        if self.young.insert(key, (value, bytes)).is_none() {
            self.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_bytes_are_bounded() {
        let memo: Memo<usize> = Memo::new(SHARDS * 100 * (ENTRY + 100));
        let asked = memo.key(0, "asked for");
        memo.put(asked, 7, 100);
        for i in 0..10_000 {
            let key = memo.key(0, &format!("text {i}"));
            assert_eq!(memo.get(key), None);
            memo.put(key, i, 100);
            assert_eq!((memo.get(key), memo.get(asked)), (Some(i), Some(7)));
        }
        let held: usize = memo
            .shards
            .iter()
            .map(|s| s.lock().unwrap_or_else(PoisonError::into_inner))
            .map(|s| s.young.len() + s.old.len())
            .sum();
        assert!((500..=SHARDS * 100).contains(&held), "{held}");
        assert_eq!(memo.get(memo.key(1, "asked for")), None);
        memo.put(memo.key(0, "large"), 1, 1 << 30);
        assert_eq!(memo.get(memo.key(0, "large")), None);
    }
}
