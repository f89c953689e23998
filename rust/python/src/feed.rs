//! Where chunks come from: pulled from a file or descriptor in Rust, or from a Python iterator.

use std::fs::File;
use std::path::PathBuf;

use headrace_core::record::Error;
use headrace_core::source::{Decoder, Source};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::errors;

/// How much of a large buffer is parsed at a time: the consumer gets what is there before the rest is read.
const SLICE: usize = 1 << 16;

/// A source that chunks are pulled from.
pub enum Feed {
    /// Read in Rust; never holds the GIL while it waits.
    Native(Source),
    /// Chunks of a Python iterator.
    Python {
        chunks: Py<PyAny>,
        decoder: Decoder,
        /// The rest of the current chunk.
        rest: Option<(PyBuffer<u8>, usize)>,
    },
}

impl Feed {
    /// A file by its path.
    pub fn path(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let source = py.detach(|| Source::open(&path));
        Ok(Feed::Native(
            source.map_err(|error| errors::from_source(py, &error))?,
        ))
    }

    /// A file descriptor, which stays open and the caller's.
    #[cfg(unix)]
    pub fn descriptor(py: Python<'_>, number: i32, name: &str) -> PyResult<Self> {
        use std::os::fd::BorrowedFd;
        // SAFETY: the number is only used to duplicate the descriptor, which fails if it is not open.
        let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
        let file = File::from(copy.map_err(|error| {
            let name = name.to_owned();
            let error = headrace_core::source::SourceError::Open { name, error };
            errors::from_source(py, &error)
        })?);
        Ok(Feed::Native(Source::reader(file, name)))
    }

    /// An iterator of bytes-like chunks.
    pub fn chunks(chunks: Py<PyAny>, name: &str) -> Self {
        Feed::Python {
            chunks,
            decoder: Decoder::new(name),
            rest: None,
        }
    }

    /// Gives the parser the next bytes; false at the end.
    pub fn step(
        &mut self,
        py: Python<'_>,
        parse: &mut dyn FnMut(&[u8]) -> Result<(), Error>,
    ) -> PyResult<bool> {
        let raise = |error| errors::from_core(py, error);
        match self {
            Feed::Native(source) => {
                // read without the GIL, parse with it: what is parsed becomes Python objects at once
                let mut read = Vec::new();
                let more = py.detach(|| {
                    source.step::<Error>(&mut |chunk| {
                        read.extend_from_slice(chunk);
                        Ok(())
                    })
                });
                parse(&read).map_err(raise)?;
                py.check_signals()?;
                more.map_err(raise)
            }
            Feed::Python {
                chunks,
                decoder,
                rest,
            } => {
                if rest.is_none() {
                    let next = chunks.bind(py).call_method0(pyo3::intern!(py, "__next__"));
                    match next {
                        Ok(chunk) => *rest = Some((buffer(&chunk)?, 0)),
                        Err(error)
                            if error.is_instance_of::<pyo3::exceptions::PyStopIteration>(py) =>
                        {
                            decoder.finish(&mut |chunk| parse(chunk)).map_err(raise)?;
                            return Ok(false);
                        }
                        Err(error) => return Err(error),
                    }
                }
                if let Some((chunk, at)) = rest {
                    let bytes = &bytes_of(chunk)[*at..];
                    let slice = &bytes[..bytes.len().min(SLICE)];
                    let result = decoder.push(slice, &mut |chunk| parse(chunk));
                    *at += slice.len();
                    if slice.len() == bytes.len() {
                        *rest = None;
                    }
                    result.map_err(raise)?;
                }
                Ok(true)
            }
        }
    }

    /// As [`step`](Feed::step), many steps at once and without the GIL where nothing of Python is needed.
    pub fn step_silently(
        &mut self,
        py: Python<'_>,
        parse: &mut (dyn FnMut(&[u8]) -> Result<(), Error> + Send),
    ) -> PyResult<bool> {
        let Feed::Native(source) = self else {
            return self.step(py, parse);
        };
        let more = py.detach(|| source.step::<Error>(&mut |chunk| parse(chunk)));
        py.check_signals()?;
        more.map_err(|error| errors::from_core(py, error))
    }
}

/// The buffer of a bytes-like object.
pub fn buffer(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let buffer = PyBuffer::get(object)?;
    if buffer.is_c_contiguous() {
        return Ok(buffer);
    }
    Err(pyo3::exceptions::PyBufferError::new_err(
        "a chunk must be one contiguous run of bytes",
    ))
}

/// The bytes of a contiguous buffer.
pub fn bytes_of(buffer: &PyBuffer<u8>) -> &[u8] {
    if buffer.len_bytes() == 0 {
        return &[];
    }
    // SAFETY: the buffer is contiguous, and its exporter keeps it in place for as long as it is held. Nobody may write to
    // it while it is parsed; the GIL is held for that time, as every caller of this function does.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
}
