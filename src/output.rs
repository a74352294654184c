//! Where a report goes: standard output, or a file that appears whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::NamedTempFile;

use crate::Usage;

/// A place to write to. Nothing of a file is seen before [`Output::finish`].
pub(crate) enum Output {
    Standard(BufWriter<StdoutLock<'static>>),
    /// Written beside its place and put there at the end.
    File(BufWriter<NamedTempFile>, PathBuf),
    /// A device or a pipe, which nothing may replace.
    Device(BufWriter<File>, PathBuf),
}

impl Output {
    /// Opens the file, or standard output where none is named.
    ///
    /// # Errors
    /// Where the folder is not there or may not be written to.
    pub(crate) fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::Standard(BufWriter::new(io::stdout().lock()))) };
        let cannot = || format!("{} cannot be written", path.display());
        if path.is_dir() {
            return Err(Usage(format!("{} is a folder, not a file", path.display())).into());
        }
        if path.exists() && !path.is_file() {
            let device = File::options().write(true).open(path).with_context(cannot)?;
            return Ok(Self::Device(BufWriter::new(device), path.to_owned()));
        }
        // A link stays, and what it leads to is replaced.
        let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = match place.parent() {
            Some(p) if !p.as_os_str().is_empty() => p,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".baton-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // As any new file: what the user's mask leaves of it.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let file = builder.tempfile_in(folder).with_context(cannot)?;
        Ok(Self::File(BufWriter::new(file), place))
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Standard(w) => w,
            Self::File(w, _) => w,
            Self::Device(w, _) => w,
        }
    }

    /// Puts what was written in its place.
    ///
    /// # Errors
    /// Where the disk is full or the place cannot be written.
    pub(crate) fn finish(mut self) -> Result<()> {
        match self {
            Self::Standard(_) => Ok(self.writer().flush()?),
            Self::Device(_, ref path) => {
                let cannot = format!("{} cannot be written", path.display());
                self.writer().flush().context(cannot)
            }
            Self::File(w, path) => {
                let cannot = || format!("{} cannot be written", path.display());
                let file = w.into_inner().map_err(io::IntoInnerError::into_error).with_context(cannot)?;
                file.as_file().sync_all().with_context(cannot)?;
                file.persist(&path).map_err(|e| e.error).with_context(cannot)?;
                Ok(())
            }
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}
