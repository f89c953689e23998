use std::fmt;
use std::io;

/// Why a source can't be read: what happened, where, and what to do.
#[derive(Debug)]
pub enum SourceError {
    Open {
        name: String,
        error: io::Error,
    },
    Read {
        name: String,
        error: io::Error,
    },
    /// The stream starts with the byte order mark of UTF-16, or as JSON does in it.
    Utf16(&'static str),
    /// Compressed data that is wrong, `at` about so many compressed bytes.
    Corrupt {
        name: String,
        format: &'static str,
        at: u64,
        why: String,
    },
    /// Compressed data that ends too early.
    Cut {
        name: String,
        format: &'static str,
        at: u64,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Open { name, error } => write!(f, "can't open {name:?}: {error}"),
            SourceError::Read { name, error } => write!(f, "can't read {name:?}: {error}"),
            SourceError::Utf16(encoding) => write!(
                f,
                "the stream begins as {encoding} does, and headrace reads UTF-8: re-encode it, for example with \
                 `iconv -f {encoding} -t UTF-8 IN > OUT`, or in PowerShell with \
                 `Get-Content IN | Set-Content -Encoding utf8 OUT` (there, `>` is what writes UTF-16)",
            ),
            SourceError::Corrupt {
                name,
                format,
                at,
                why,
            } => {
                write!(
                    f,
                    "{name}: the {format} data is corrupt near compressed byte {at}: {why}"
                )
            }
            SourceError::Cut { name, format, at } => write!(
                f,
                "{name}: the {format} data ends inside a compressed frame, after {at} compressed bytes: the file is cut \
                 or still being written; `events` gives what can be read of it"
            ),
        }
    }
}

impl std::error::Error for SourceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SourceError::Open { error, .. } | SourceError::Read { error, .. } => Some(error),
            _ => None,
        }
    }
}
