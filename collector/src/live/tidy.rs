//! Housekeeping beside a running collector: small files of past hours are merged, old hours removed.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use baton_record::objects::Objects;
use tokio::runtime::Handle;

use super::Log;
use crate::keep::{self, CompactSettings, Error, RetainSettings, remote};

/// When it starts, and how often it runs: past hours do not change much.
const FIRST: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(600);

/// The store.
pub(super) enum Place {
    /// A folder.
    Folder(PathBuf),
    /// On an object store.
    Objects(Objects, Handle),
}

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
        store: Place,
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

fn run(store: &Place, merge: bool, keep: Option<Duration>, log: &Log) {
    let now = SystemTime::now();
    if let Some(time) = keep {
        let settings = RetainSettings::new(time);
        let done = match store {
            Place::Folder(root) => keep::retain(root, &settings, now),
            Place::Objects(o, runtime) => runtime.block_on(remote::retain(o, &settings, now)),
        };
        match done {
            Ok(done) if !done.hidden.is_empty() => {
                log(&format!("{} files are older than kept and were taken out", done.hidden.len()));
            }
            // Another collector of this store is at it.
            Ok(_) | Err(Error::Busy(_)) => {}
            Err(e) => log(&format!("old hours could not be removed: {e}")),
        }
    }
    if merge {
        let settings = CompactSettings::default();
        let done = match store {
            Place::Folder(root) => keep::compact(root, &settings, now),
            Place::Objects(o, runtime) => runtime.block_on(remote::compact(o, &settings, now)),
        };
        match done {
            Ok(done) => done.problems.iter().for_each(|p| log(&format!("left as it is: {p}"))),
            Err(Error::Busy(_)) => {}
            Err(e) => log(&format!("small files could not be merged: {e}")),
        }
    }
}
