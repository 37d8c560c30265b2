//! One server a file: a lock beside it.
//!
//! Invariant: the lock lives and dies with the process, because the operating system holds it; a
//! lock file that a killed server left behind blocks nobody. The file's content serves only the
//! message to the second server.
//!
//! Absent: the lock file is never deleted. Between deleting and creating it two servers could
//! each hold a lock of the same name.

use super::error::cannot_use;
use crate::clock::Clock;
use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

pub(super) struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock of the database at `path`, or says who has it.
    pub(super) fn take(path: &Path) -> Result<Lock> {
        let lock_path = beside(path, ".lock");
        let unavailable = |error: std::io::Error| cannot_use(&lock_path, &error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&lock_path).map_err(unavailable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(in_use(path, &mut file)),
            Err(TryLockError::Error(error)) => return Err(unavailable(error)),
        }
        let (pid, now) = (std::process::id(), Clock::System.now());
        file.set_len(0).map_err(unavailable)?;
        writeln!(file, "{pid} {now}").map_err(unavailable)?;
        Ok(Lock { file })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would do as well, but a child process may have inherited it.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

fn in_use(path: &Path, file: &mut File) -> Error {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let holder = match (read, text.trim().split_once(' ')) {
        (Ok(_), Some((pid, since))) => format!("process {pid}, since {since}"),
        // The holder has the lock, but has not yet written who it is.
        _ => "a process that has just started".into(),
    };
    Error::InUse(format!(
        "{} is in use by another Windlass server ({holder}): stop that one, or name another file",
        path.display()
    ))
}

/// The path with something appended to its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
