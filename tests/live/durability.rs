//! Killed, ended, without room, with a damaged journal, beside another: nothing acknowledged is lost.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::exporters::export;
use super::{Collector, Start, each_once, files_of, free};

/// Exporters that send until told to stop, and what was acknowledged to them.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<HashSet<u64>>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    /// Half of the exporters speak gRPC through the SDK's exporter, half HTTP; all try again until they are answered.
    fn start(c: &Collector) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(Mutex::new(HashSet::new()));
        let next = Arc::new(AtomicU64::new(0));
        let threads = (0..4u64)
            .map(|n| {
                let (stop, acknowledged, next) = (stop.clone(), acknowledged.clone(), next.clone());
                let (http, grpc) = (c.http, c.grpc);
                std::thread::spawn(move || {
                    let mut send = export(if n % 2 == 0 { None } else { Some(http) }, grpc);
                    while !stop.load(Ordering::Relaxed) {
                        let size = 1 + n * 7;
                        let from = next.fetch_add(size, Ordering::Relaxed);
                        let ids: Vec<u64> = (from..from + size).collect();
                        while !send(&ids) {
                            if stop.load(Ordering::Relaxed) {
                                return;
                            }
                            std::thread::sleep(Duration::from_millis(3));
                        }
                        acknowledged.lock().unwrap().extend(ids);
                    }
                })
            })
            .collect();
        Self { stop, acknowledged, threads }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    fn end(self) -> HashSet<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|t| t.join().unwrap());
        Arc::try_unwrap(self.acknowledged).unwrap().into_inner().unwrap()
    }
}

#[test]
fn killed_at_any_moment_it_keeps_what_it_acknowledged() {
    let rounds: u64 = std::env::var("BATON_KILL_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(200);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let start = Start { http: free(), grpc: free(), ..Start::at(&store) };
    let mut c = start.start();
    let load = Load::start(&c);
    let mut rng = fastrand::Rng::with_seed(7);
    let mut worked = 0;
    for _ in 0..rounds {
        let before = load.count();
        std::thread::sleep(Duration::from_micros(rng.u64(0..250_000)));
        c.kill();
        worked += u64::from(load.count() > before);
        // Some die while they start and take over what was left.
        if rng.bool() {
            let mut early = start.spawn();
            std::thread::sleep(Duration::from_micros(rng.u64(0..80_000)));
            let _ = early.kill();
            let _ = early.wait();
        }
        c = start.start();
    }
    std::thread::sleep(Duration::from_secs(1));
    let acknowledged = load.end();
    assert!(worked > rounds / 4, "only {worked} of {rounds} rounds were under load");
    // Of many segments one may not finish all in the time it has to end; the next goes on with them.
    let mut left = usize::MAX;
    loop {
        assert_eq!(c.terminate().0, Some(0), "{}", c.said());
        let now = segments(&store).len();
        assert!(now < left, "{now} segments are left, and none was finished");
        if now == 0 {
            break;
        }
        left = now;
        c = start.start();
    }
    assert!(acknowledged.len() > 1000, "{}", acknowledged.len());
    each_once(&store, acknowledged);
}

/// Segments in a store's journal, those set aside included.
fn segments(store: &Path) -> Vec<PathBuf> {
    files_of(&store.join("journal"), "arrows")
}

#[test]
fn told_to_end_it_finishes_and_ends_well() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let config = "[collect]\nvisible_after = \"1h\"\n";
    let mut c = Start { config, ..Start::at(&store) }.start();
    let load = Load::start(&c);
    std::thread::sleep(Duration::from_millis(700));
    let (code, took) = c.terminate();
    assert_eq!(code, Some(0), "{}", c.said());
    assert!(took < Duration::from_secs(10), "{took:?}");
    let acknowledged = load.end();
    assert!(!acknowledged.is_empty());
    assert_eq!(segments(&store), Vec::<PathBuf>::new());
    each_once(&store, acknowledged);
}

#[test]
fn two_collectors_share_a_store_and_one_takes_over_from_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    // Both find no store, and must agree on its key.
    let config = "[collect]\nvisible_after = \"1h\"\n";
    let (a, b) = std::thread::scope(|s| {
        let start = || Start { config, ..Start::at(&store) }.start();
        let a = s.spawn(start);
        (start(), a.join().unwrap())
    });
    let (mut a, mut b) = (a, b);
    let (of_a, of_b) = (Load::start(&a), Load::start(&b));
    std::thread::sleep(Duration::from_millis(500));
    let (mut all, more) = (of_a.end(), of_b.end());
    all.extend(more);
    a.kill();
    assert!(!segments(&store).is_empty());
    assert_eq!(b.terminate().0, Some(0));
    // Of the one that was killed.
    let mut c = Start::at(&store).start();
    c.says("taken over");
    assert_eq!(c.terminate().0, Some(0));
    assert_eq!(segments(&store), Vec::<PathBuf>::new());
    each_once(&store, all);
}

#[test]
fn a_damaged_segment_is_set_aside_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let config = "[collect]\nvisible_after = \"1h\"\n";
    let mut c = Start { config, ..Start::at(&store) }.start();
    for n in 0..20 {
        assert_eq!(c.post(&[n * 2, n * 2 + 1]), 200);
    }
    c.kill();
    let path = segments(&store).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    // A letter of a name, of the seventh request.
    let name = b"span 12";
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut c = Start::at(&store).start();
    c.says("set aside");
    assert!(c.said().contains("checksum") && c.said().contains("batch at byte"), "{}", c.said());
    assert_eq!(c.post(&[100]), 200);
    assert_eq!(c.metric("baton_damaged_segments_total"), 1.0);
    assert_eq!(c.terminate().0, Some(0));
    assert_eq!(segments(&store).len(), 1);
    // All but the request that is damaged.
    each_once(&store, (0..40).filter(|n| !(12..14).contains(n)).chain([100]));
}

/// A file system of its own, where this is allowed: a disk that can be full.
struct Disk(PathBuf);

impl Disk {
    fn new(path: PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&path)
            .output();
        done.is_ok_and(|o| o.status.success()).then_some(Self(path))
    }

    fn remount(&self, how: &str) {
        let done =
            Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn without_room_senders_are_told_to_try_again_and_it_goes_on_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::new(dir.path().join("disk"), "6m") else {
        // Only who may mount can make a disk that is full.
        assert!(std::env::var("BATON_TEST_MOUNT").is_err(), "BATON_TEST_MOUNT is set and mounting fails");
        return;
    };
    let store = disk.0.join("store");
    fs::create_dir(&store).unwrap();
    let config = "[collect]\nvisible_after = \"1s\"\n";
    let filler = disk.0.join("filler");
    let mut c = Start { config, ..Start::at(&store) }.start();
    let mut kept = Vec::new();
    assert_eq!(c.post(&[1]), 200);
    kept.push(1);
    // Full, as far as it goes.
    let mut written = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut written, &[0u8; 4096]).is_ok() {}
    let started = Instant::now();
    let mut id = 2;
    let refused = loop {
        match c.post(&(id..id + 40).collect::<Vec<_>>()) {
            200 => kept.extend(id..id + 40),
            other => break other,
        }
        id += 40;
        assert!(started.elapsed() < Duration::from_secs(60), "never full");
    };
    assert_eq!(refused, 503);
    c.says("cannot be written");
    // Alive, and honest about it.
    assert_eq!(super::get(c.http, "/healthz").status, 200);
    assert!(c.metric("baton_journal_errors_total") >= 1.0);
    drop(written);
    fs::remove_file(&filler).unwrap();
    let again = |c: &Collector, ids: &[u64]| {
        let started = Instant::now();
        while c.post(ids) != 200 {
            assert!(started.elapsed() < Duration::from_secs(30), "it does not go on: {}", c.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    again(&c, &[10_000]);
    kept.push(10_000);
    // The same for a disk that may not be written.
    std::thread::sleep(Duration::from_secs(2));
    disk.remount("ro");
    assert_eq!(c.post(&[10_001]), 503);
    disk.remount("rw");
    again(&c, &[10_001]);
    kept.push(10_001);
    assert_eq!(c.terminate().0, Some(0), "{}", c.said());
    each_once(&store, kept);
}

#[test]
fn past_its_limit_the_journal_takes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let config = "[collect]\nvisible_after = \"1h\"\njournal_limit = \"1MiB\"\n";
    let mut c = Start { config, ..Start::at(&store) }.start();
    let mut kept = Vec::new();
    for n in 0..2000u64 {
        match c.post(&[n]) {
            200 => kept.push(n),
            other => {
                assert_eq!(other, 503);
                break;
            }
        }
    }
    assert!(kept.len() > 10 && kept.len() < 2000, "{}", kept.len());
    assert_eq!(c.terminate().0, Some(0));
    each_once(&store, kept);
}

#[test]
fn what_is_acknowledged_can_be_asked_for_soon() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let mut c = Start { config: "", ..Start::at(&store) }.start();
    assert_eq!(c.post(&[1, 2, 3]), 200);
    let started = Instant::now();
    while files_of(&store.join("spans"), "parquet").is_empty() {
        assert!(started.elapsed() < Duration::from_secs(10), "not there after 10 s");
        std::thread::sleep(Duration::from_millis(100));
    }
    each_once(&store, [1, 2, 3]);
    assert_eq!(c.terminate().0, Some(0));
}
