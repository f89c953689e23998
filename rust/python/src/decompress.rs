//! `decompress`: chunks of Python's as they are, or decompressed.

use headrace_core::source::Decoder;
use pyo3::PyTraverseError;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyStopIteration;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Failure;
use crate::feed::{buffer, bytes_of};

/// The chunks of an iterator as they are, or decompressed when they begin as gzip or zstd does.
#[pyclass(name = "decompress", module = "headrace._native")]
pub struct Decompress {
    chunks: Option<Py<PyAny>>,
    decoder: Decoder,
    /// A chunk, and how much of it was taken.
    rest: Option<(PyBuffer<u8>, usize)>,
    /// Raised after what came before it.
    failed: Option<PyErr>,
}

#[pymethods]
impl Decompress {
    #[new]
    fn new(chunks: Py<PyAny>, name: &str) -> Self {
        Decompress {
            chunks: Some(chunks),
            decoder: Decoder::new(name),
            rest: None,
            failed: None,
        }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut out = Vec::new();
        while out.is_empty() && self.failed.is_none() {
            match self.step(py, &mut out) {
                Ok(true) => (),
                Ok(false) => break,
                Err(failure) => self.failed = Some(failure.raise(py, None)),
            }
        }
        if !out.is_empty() {
            return Ok(Some(PyBytes::new(py, &out)));
        }
        self.close(py)?;
        self.failed.take().map_or(Ok(None), Err)
    }

    /// Lets go of the iterator.
    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        self.rest = None;
        let Some(chunks) = self.chunks.take() else {
            return Ok(());
        };
        match chunks.bind(py).getattr_opt(intern!(py, "close"))? {
            Some(close) => close.call0().map(drop),
            None => Ok(()),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.chunks)
    }

    fn __clear__(&mut self) {
        self.chunks = None;
    }
}

impl Decompress {
    /// Adds a piece of output at most; false at the end.
    fn step(&mut self, py: Python<'_>, out: &mut Vec<u8>) -> Result<bool, Failure> {
        let mut sink = |piece: &[u8]| -> Result<(), Failure> {
            out.extend_from_slice(piece);
            Ok(())
        };
        if let Some((chunk, at)) = &mut self.rest {
            let bytes = bytes_of(chunk);
            *at += self.decoder.step(&bytes[*at..], &mut sink)?;
            if *at == bytes.len() {
                self.rest = None;
            }
            return Ok(true);
        }
        let Some(chunks) = &self.chunks else {
            return Ok(false);
        };
        match chunks.bind(py).call_method0(intern!(py, "__next__")) {
            Ok(chunk) => self.rest = Some((buffer(&chunk)?, 0)),
            Err(error) if error.is_instance_of::<PyStopIteration>(py) => {
                self.chunks = None;
                self.decoder.finish(&mut sink)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }
}
