use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a live source can't be drained, or not any further.
#[derive(Debug)]
pub enum LiveError {
    /// Memory is full, and the spill file took no more.
    Spill {
        name: String,
        dir: PathBuf,
        error: io::Error,
    },
    Read {
        name: String,
        error: io::Error,
    },
    /// It can't be waited for: a regular file, or a number that is no open descriptor.
    Open {
        name: String,
        error: io::Error,
    },
    /// The system gave no thread, no poller or no pipe.
    Start(io::Error),
    /// Used in a process that was forked from the one that made it.
    Forked,
    /// There is no such stream, or the intake is closed.
    Gone,
}

impl LiveError {
    /// A copy, for a stream that is asked again.
    pub(super) fn again(&self) -> LiveError {
        let copy = |error: &io::Error| match error.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(error.kind(), error.to_string()),
        };
        match self {
            LiveError::Spill { name, dir, error } => LiveError::Spill {
                name: name.clone(),
                dir: dir.clone(),
                error: copy(error),
            },
            LiveError::Read { name, error } => LiveError::Read {
                name: name.clone(),
                error: copy(error),
            },
            LiveError::Open { name, error } => LiveError::Open {
                name: name.clone(),
                error: copy(error),
            },
            LiveError::Start(error) => LiveError::Start(copy(error)),
            LiveError::Forked => LiveError::Forked,
            LiveError::Gone => LiveError::Gone,
        }
    }
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::Spill { name, dir, error } => write!(
                f,
                "{name}: what it printed fits neither into memory_limit nor into the spill file in {dir:?}: {error}; \
                 everything up to here was delivered and nothing after it was read; free space there, or give a \
                 larger memory_limit or another spill_dir"
            ),
            LiveError::Read { name, error } => write!(f, "can't read {name}: {error}"),
            LiveError::Open { name, error } => write!(
                f,
                "{name} can't be drained as it grows: {error}; only pipes, sockets and terminals can"
            ),
            LiveError::Start(error) => write!(f, "can't start the intake: {error}"),
            LiveError::Forked => f.write_str(
                "this intake belongs to the process that made it, and this process was forked from that: make \
                 another one here",
            ),
            LiveError::Gone => f.write_str("the intake, or this stream of it, is closed"),
        }
    }
}

impl std::error::Error for LiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LiveError::Spill { error, .. }
            | LiveError::Read { error, .. }
            | LiveError::Open { error, .. }
            | LiveError::Start(error) => Some(error),
            LiveError::Forked | LiveError::Gone => None,
        }
    }
}
