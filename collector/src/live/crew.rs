//! Reading one large request on several threads, where there are some with nothing to do.

use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread::Builder;

/// Stack of a thread that reads: nesting is bounded, this is far above what it needs.
pub(super) const STACK: usize = 8 << 20;

/// The reading threads of a collector: how many of them wait. The default has none.
#[derive(Debug, Default)]
pub struct Crew {
    waiting: AtomicIsize,
}

impl Crew {
    /// Waits for work, counted as free meanwhile.
    pub fn wait<T>(&self, work: impl FnOnce() -> T) -> T {
        let _free = Counted::new(self, 1);
        work()
    }

    /// Whether one of them has nothing to do at the moment.
    pub fn is_free(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Does each of so many tasks, on this thread and on as many more as are free; results in the order of the tasks.
    ///
    /// A free thread waits in the queue of requests and cannot be called from there, so a new one runs in its place and ends with
    /// the tasks. A request that comes meanwhile finds the waiting one, so there may be twice as many for a moment.
    ///
    /// # Panics
    /// Where a task does.
    pub fn each<T: Send>(&self, tasks: usize, task: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let free = usize::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(0);
        let helpers = free.min(tasks.saturating_sub(1));
        let _taken = Counted::new(self, -isize::try_from(helpers).unwrap_or(0));
        let next = AtomicUsize::new(0);
        let work = || {
            let one = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < tasks);
            std::iter::from_fn(one).map(|n| (n, task(n))).collect::<Vec<_>>()
        };
        let mut done = std::thread::scope(|scope| {
            let name = || Builder::new().name("baton-read-part".to_owned()).stack_size(STACK);
            // Where no thread can be started this one does it all.
            let others: Vec<_> = (0..helpers).filter_map(|_| name().spawn_scoped(scope, work).ok()).collect();
            let mut done = work();
            for other in others {
                match other.join() {
                    Ok(more) => done.extend(more),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        done.sort_unstable_by_key(|(n, _)| *n);
        done.into_iter().map(|(_, t)| t).collect()
    }
}

/// A change of the count, taken back when dropped.
struct Counted<'a> {
    crew: &'a Crew,
    by: isize,
}

impl<'a> Counted<'a> {
    fn new(crew: &'a Crew, by: isize) -> Self {
        crew.waiting.fetch_add(by, Ordering::Relaxed);
        Self { crew, by }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.crew.waiting.fetch_sub(self.by, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::{Barrier, Mutex};
    use std::thread::{ThreadId, current};

    fn threads(crew: &Crew, tasks: usize) -> usize {
        let seen: Mutex<HashSet<ThreadId>> = Mutex::default();
        let doubled = crew.each(tasks, |n| {
            seen.lock().map(|mut s| s.insert(current().id())).ok();
            2 * n
        });
        assert_eq!(doubled, (0..tasks).map(|n| 2 * n).collect::<Vec<_>>());
        seen.into_inner().map_or(0, |s| s.len())
    }

    #[test]
    fn nobody_helps_where_nobody_waits() {
        let crew = Crew::default();
        assert_eq!((threads(&crew, 0), threads(&crew, 1), threads(&crew, 50)), (0, 1, 1));
    }

    #[test]
    fn those_who_wait_help() {
        let crew = Crew::default();
        crew.wait(|| {
            crew.wait(|| {
                // Each task waits for the two others, so it takes three threads to do them.
                let (all, still) = (Barrier::new(3), Barrier::new(3));
                let alone = crew.each(3, |_| {
                    all.wait();
                    // While all help here, there is nobody for another request.
                    let more = crew.each(2, |_| current().id());
                    still.wait();
                    more == [current().id(); 2]
                });
                assert_eq!(alone, [true; 3]);
            });
        });
        assert_eq!(crew.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_defect_in_a_part_is_one_of_the_whole() {
        let crew = Crew::default();
        let ended = std::panic::catch_unwind(|| crew.wait(|| crew.each(4, |n| assert!(n < 3))));
        assert!(ended.is_err());
        assert_eq!(crew.waiting.load(Ordering::Relaxed), 0, "nobody is lost");
    }
}
