//! Where chunks come from: pulled from a file or descriptor in Rust, or from a Python iterator.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use headrace_core::ahead::{Ahead, Piece, Pool};
use headrace_core::frame::whole_lines;
use headrace_core::json::{Decoded, Expected};
use headrace_core::source::{Decoder, Source, SourceError};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;

use crate::errors::{self, Failure};

/// About how much is parsed at a time: a few lines. What they become is taken by the consumer before the next are parsed,
/// so that the same memory serves again, warm, and Python's garbage collector has nothing to look through.
const SLICE: usize = 1 << 12;
/// Where they become nothing, it is twice as much each time, up to this.
const LONG_SLICE: usize = 1 << 18;

/// A source that chunks are pulled from.
pub enum Feed {
    /// Read in Rust; never holds the GIL while it waits.
    Native {
        source: Box<Ahead>,
        /// Of the piece that was read last, what is not parsed yet begins here; if it was decoded, with this line.
        at: Option<usize>,
    },
    /// Chunks of a Python iterator.
    Python {
        chunks: Py<PyAny>,
        decoder: Decoder,
        /// The rest of the current chunk.
        rest: Option<(PyBuffer<u8>, usize)>,
    },
}

impl Feed {
    /// A file by its path. For `series`, see [`Ahead::new`].
    pub fn path(py: Python<'_>, path: PathBuf, series: Expected) -> PyResult<Self> {
        let source = py.detach(|| Source::open(&path));
        let source = source.map_err(|error| errors::from_source(py, &error))?;
        Ok(Feed::native(source, series))
    }

    fn native(source: Source, series: Expected) -> Self {
        Feed::Native {
            source: Box::new(Ahead::new(source, series)),
            at: None,
        }
    }

    /// A file descriptor, which stays open and the caller's.
    #[cfg(unix)]
    pub fn descriptor(py: Python<'_>, number: i32, name: &str, series: Expected) -> PyResult<Self> {
        use std::os::fd::BorrowedFd;
        // SAFETY: the number is only used to duplicate the descriptor, which fails if it is not open.
        let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
        let file = File::from(copy.map_err(|error| {
            let name = name.to_owned();
            let error = SourceError::Open { name, error };
            errors::from_source(py, &error)
        })?);
        Ok(Feed::native(Source::reader(file, name), series))
    }

    /// An iterator of bytes-like chunks.
    pub fn chunks(chunks: Py<PyAny>, name: &str) -> Self {
        Feed::Python {
            chunks,
            decoder: Decoder::new(name),
            rest: None,
        }
    }

    /// The source, and threads that can parse it, if it has such and everything that was read is parsed.
    fn lend(self) -> Result<(Box<Ahead>, Arc<Pool>), Self> {
        match self {
            Feed::Native {
                mut source,
                at: None,
            } => match source.join() {
                Some(pool) => Ok((source, pool)),
                None => Err(Feed::Native { source, at: None }),
            },
            other => Err(other),
        }
    }

    /// Gives the parser the next bytes, about so many; false at the end.
    fn step(
        &mut self,
        py: Python<'_>,
        about: usize,
        parse: &mut Parse<'_>,
    ) -> Result<bool, Failure> {
        match self {
            Feed::Native { source, at } => {
                let mut more = true;
                if at.is_none() {
                    // Read without the GIL, and parse with it: what is parsed becomes Python objects at once.
                    more = py.detach(|| source.advance())?;
                    py.check_signals()?;
                }
                let from = at.take().unwrap_or_default();
                match source.piece() {
                    Some(Piece::Bytes(bytes)) => {
                        let end = from + whole_lines(&bytes[from..], about);
                        *at = (end < bytes.len()).then_some(end);
                        parse(Input::Bytes(&bytes[from..end]))?;
                    }
                    Some(Piece::Decoded(piece)) => {
                        *at = parse(Input::Decoded(piece, from, about))?;
                    }
                    None => (),
                }
                Ok(more)
            }
            Feed::Python {
                chunks,
                decoder,
                rest,
            } => {
                if rest.is_none() {
                    match chunks.bind(py).call_method0(intern!(py, "__next__")) {
                        Ok(chunk) => *rest = Some((buffer(&chunk)?, 0)),
                        Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                            decoder
                                .finish(&mut |chunk: &[u8]| parse(Input::Bytes(chunk)).map(drop))?;
                            return Ok(false);
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                if let Some((chunk, at)) = rest {
                    let bytes = &bytes_of(chunk)[*at..];
                    let slice = &bytes[..whole_lines(bytes, about)];
                    let last = slice.len() == bytes.len();
                    *at += slice.len();
                    let result = decoder.push(slice, &mut |chunk: &[u8]| {
                        parse(Input::Bytes(chunk)).map(drop)
                    });
                    if last {
                        *rest = None;
                    }
                    result?;
                }
                Ok(true)
            }
        }
    }

    /// As `step`, for a parser that needs nothing of Python: the GIL is not held while a native source is parsed.
    pub fn step_silently(
        &mut self,
        py: Python<'_>,
        parse: &mut (dyn FnMut(Input<'_>) -> Result<Option<usize>, Failure> + Send),
    ) -> Result<bool, Failure> {
        let Feed::Native { source, .. } = self else {
            return self.step(py, LONG_SLICE, &mut |input| parse(input));
        };
        let more = py.detach(|| advance(source, parse));
        py.check_signals()?;
        more
    }
}

/// Parses the next piece of a source; false at the end.
pub fn advance<E: From<SourceError>>(
    source: &mut Ahead,
    parse: &mut (dyn FnMut(Input<'_>) -> Result<Option<usize>, E> + Send),
) -> Result<bool, E> {
    let more = source.advance()?;
    match source.piece() {
        Some(Piece::Bytes(bytes)) => parse(Input::Bytes(bytes))?,
        Some(Piece::Decoded(piece)) => parse(Input::Decoded(piece, 0, usize::MAX))?,
        None => None,
    };
    Ok(more)
}

/// Makes objects of an input, and pushes them onto the queue.
type Make<'m> =
    dyn FnMut(Input<'_>, &mut VecDeque<Py<PyAny>>) -> Result<Option<usize>, Failure> + 'm;

/// The line of a decoded piece that is next; None of other input, and at the end of the piece.
type Parse<'p> = dyn FnMut(Input<'_>) -> Result<Option<usize>, Failure> + 'p;

/// What a parser is given: the next bytes, or the end.
pub enum Input<'i> {
    Bytes(&'i [u8]),
    /// The lines from this one on, of about so many bytes.
    Decoded(&'i Decoded, usize, usize),
    End,
}

/// An iterator over what a parser makes of an attached source. What came before an error is given before it is raised.
#[derive(Default)]
pub struct Pull {
    feed: Option<Feed>,
    /// What messages call the source; None where that is not known.
    pub name: Option<String>,
    ready: VecDeque<Py<PyAny>>,
    /// About how much is parsed next, if it is more than `SLICE`.
    about: usize,
    failed: Option<PyErr>,
    done: bool,
}

impl Pull {
    pub fn attach(&mut self, feed: Feed, name: &str) {
        self.feed = Some(feed);
        self.name = Some(name.to_owned());
    }

    /// What is raised for a failure of reading or parsing.
    pub fn error(&self, py: Python<'_>, failure: Failure) -> PyErr {
        failure.raise(py, self.name.as_deref())
    }

    /// What is made of the source elsewhere comes before what `next` makes.
    pub fn ready(&mut self) -> &mut VecDeque<Py<PyAny>> {
        &mut self.ready
    }

    /// Nothing more comes but this.
    pub fn fail(&mut self, error: PyErr) {
        self.feed = None;
        self.done = true;
        self.failed = Some(error);
    }

    /// See [`Feed::lend`].
    pub fn lend(&mut self) -> Option<(Box<Ahead>, Arc<Pool>)> {
        match self.feed.take()?.lend() {
            Ok(lent) => Some(lent),
            Err(feed) => {
                self.feed = Some(feed);
                None
            }
        }
    }

    pub fn give_back(&mut self, mut source: Box<Ahead>) {
        source.leave();
        self.feed = Some(Feed::Native { source, at: None });
    }

    pub fn feed(&mut self) -> Option<&mut Feed> {
        self.feed.as_mut()
    }

    /// The source is at its end: its file is closed, and what reading it took is there for others, however long somebody
    /// keeps the run.
    pub fn close(&mut self) {
        self.feed = None;
    }

    /// The next object; None at the end. `parse` pushes what it makes of its input onto the queue.
    pub fn next(&mut self, py: Python<'_>, parse: &mut Make<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            if let Some(object) = self.ready.pop_front() {
                return Ok(Some(object));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.done {
                return Ok(None);
            }
            let ready = &mut self.ready;
            let about = self.about.max(SLICE);
            let more = match &mut self.feed {
                Some(feed) => feed.step(py, about, &mut |input| parse(input, ready)),
                None => Ok(false),
            };
            self.about = match ready.is_empty() {
                true => LONG_SLICE.min(2 * about),
                false => SLICE,
            };
            let result = match more {
                Ok(true) => continue,
                Ok(false) => parse(Input::End, &mut self.ready).map(drop),
                Err(failure) => Err(failure),
            };
            self.done = true;
            self.feed = None;
            self.failed = result.err().map(|failure| self.error(py, failure));
        }
    }
}

/// A number of bytes that Python gave.
pub fn not_negative(bytes: i64, name: &str) -> PyResult<u64> {
    let negative = |_| PyValueError::new_err(format!("{name} is negative"));
    bytes.try_into().map_err(negative)
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
