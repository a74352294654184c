//! Housekeeping beside a running collector: small files of past hours are merged, old hours removed.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use super::Log;
use crate::keep::{CompactSettings, Error, RetainSettings, compact, retain};

/// When it starts, and how often it runs: past hours do not change much.
const FIRST: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(600);

/// Runs until it is dropped.
pub(super) struct Tidy {
    _stop: Sender<()>,
}

impl Tidy {
    /// Starts a thread.
    ///
    /// # Errors
    /// Where it cannot be started.
    pub(super) fn start(
        store: PathBuf,
        merge: bool,
        keep: Option<Duration>,
        log: Log,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        std::thread::Builder::new().name("baton-tidy".to_owned()).spawn(move || {
            let mut wait = FIRST;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                wait = EVERY;
                run(&store, merge, keep, &log);
            }
        })?;
        Ok(Self { _stop: stop })
    }
}

fn run(store: &std::path::Path, merge: bool, keep: Option<Duration>, log: &Log) {
    let now = SystemTime::now();
    if let Some(time) = keep {
        match retain(store, &RetainSettings::new(time), now) {
            Ok(done) if !done.hidden.is_empty() => {
                log(&format!("{} files are older than kept and were taken out", done.hidden.len()));
            }
            // Another collector of this store is at it.
            Ok(_) | Err(Error::Busy(_)) => {}
            Err(e) => log(&format!("old hours could not be removed: {e}")),
        }
    }
    if merge {
        match compact(store, &CompactSettings::default(), now) {
            Ok(done) => done.problems.iter().for_each(|p| log(&format!("left as it is: {p}"))),
            Err(Error::Busy(_)) => {}
            Err(e) => log(&format!("small files could not be merged: {e}")),
        }
    }
}
