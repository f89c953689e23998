//! `Reader` and `Record`: the raw layer.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use headrace_core::json::{Doc, Tape, Value};
use headrace_core::reader::{self, Records};
use headrace_core::record::{self, Options, native_type};
use headrace_core::report::Malformed;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::engine::tell;
use crate::errors;
use crate::feed::{Feed, buffer, bytes_of};
use crate::objects::{Builder, Halves};

/// One record; nothing of it is decoded that is not asked for.
#[pyclass(frozen, module = "headrace._native")]
pub struct Record {
    text: Box<[u8]>,
    #[pyo3(get)]
    line: u64,
    #[pyo3(get)]
    offset: u64,
    #[pyo3(get)]
    lossy: bool,
    #[pyo3(get)]
    salvaged: bool,
}

impl Record {
    pub fn new(record: &record::Record<'_>) -> Self {
        Record {
            text: record.raw.into(),
            line: record.line,
            offset: record.offset,
            lossy: record.lossy,
            salvaged: record.salvaged,
        }
    }

    /// Parses the text again and looks at it: a record that is only counted or compared was never decoded.
    fn look<T>(&self, look: impl FnOnce(Value<'_>) -> PyResult<T>) -> PyResult<T> {
        let mut tape = Tape::new();
        let text;
        let doc: Result<Doc<'_>, _> = if self.salvaged {
            text = String::from_utf8_lossy(&self.text);
            tape.parse_lax(text.as_bytes())
        } else {
            tape.parse(&self.text)
        };
        match doc {
            Ok(doc) => look(doc.root()),
            Err(error) => Err(pyo3::exceptions::PySystemError::new_err(format!(
                "a record can't be parsed again: {error:?}"
            ))),
        }
    }
}

#[pymethods]
impl Record {
    /// The bytes of its JSON text.
    #[getter]
    fn raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.text)
    }

    /// What the harness calls this kind of record.
    #[getter]
    fn r#type(&self) -> PyResult<Option<String>> {
        self.look(|value| Ok(native_type(value).map(|kind| kind.lossy().into_owned())))
    }

    fn to_dict(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.look(|value| {
            let object = Builder::new().value(py, value, Halves::Keep)?;
            Ok(object.unbind())
        })
    }

    fn __getitem__(&self, py: Python<'_>, key: &str) -> PyResult<Py<PyAny>> {
        self.look(|value| match value.get(key) {
            Some(value) => Ok(Builder::new().value(py, value, Halves::Keep)?.unbind()),
            None => Err(PyKeyError::new_err(key.to_owned())),
        })
    }

    fn __contains__(&self, key: &str) -> PyResult<bool> {
        self.look(|value| Ok(value.get(key).is_some()))
    }

    /// The value at a path of keys; None if it is not there.
    #[pyo3(signature = (*path))]
    fn get(&self, py: Python<'_>, path: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let keys: Vec<String> = path.extract()?;
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        self.look(|value| match value.path(&keys) {
            Some(value) => Ok(Builder::new().value(py, value, Halves::Keep)?.unbind()),
            None => Ok(py.None()),
        })
    }

    fn __repr__(&self) -> PyResult<String> {
        let kind = self.r#type()?.unwrap_or_default();
        let (line, offset, size) = (self.line, self.offset, self.text.len());
        Ok(format!(
            "<Record {kind:?} line={line} offset={offset} bytes={size}>"
        ))
    }
}

#[pyclass(subclass, module = "headrace._native")]
pub struct Reader {
    reader: reader::Reader,
    builder: Builder,
    on_malformed: Option<Py<PyAny>>,
    feed: Option<Feed>,
    ready: VecDeque<Py<PyAny>>,
    failed: Option<PyErr>,
    done: bool,
}

struct Collector<'c, 'py> {
    py: Python<'py>,
    builder: &'c mut Builder,
    on_malformed: Option<&'c Py<PyAny>>,
    out: &'c mut VecDeque<Py<PyAny>>,
    failed: Option<PyErr>,
}

impl Records for Collector<'_, '_> {
    fn record(&mut self, record: &record::Record<'_>) {
        if self.failed.is_none() {
            match Py::new(self.py, Record::new(record)) {
                Ok(record) => self.out.push_back(record.into_any()),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    fn malformed(&mut self, line: &Malformed) {
        if let (Some(call), None) = (self.on_malformed, &self.failed) {
            self.failed = tell(self.py, self.builder, call, line).err();
        }
    }
}

impl Reader {
    fn collect<T>(
        &mut self,
        py: Python<'_>,
        run: impl FnOnce(&mut reader::Reader, Option<&mut Feed>, &mut dyn Records) -> PyResult<T>,
    ) -> PyResult<T> {
        let mut collector = Collector {
            py,
            builder: &mut self.builder,
            on_malformed: self.on_malformed.as_ref(),
            out: &mut self.ready,
            failed: None,
        };
        let result = run(&mut self.reader, self.feed.as_mut(), &mut collector);
        match collector.failed {
            Some(error) => Err(error),
            None => result,
        }
    }
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (*, only=None, strict=false, max_line_bytes=268_435_456, on_malformed=None))]
    fn new(
        only: Option<HashSet<String>>,
        strict: bool,
        max_line_bytes: u64,
        on_malformed: Option<Py<PyAny>>,
    ) -> Self {
        let options = Options {
            strict,
            max_line_bytes,
        };
        Reader {
            reader: reader::Reader::new(only, options),
            builder: Builder::new(),
            on_malformed,
            feed: None,
            ready: VecDeque::new(),
            failed: None,
            done: false,
        }
    }

    fn feed(&mut self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
        let chunk = buffer(chunk)?;
        self.collect(py, |reader, _, records| {
            let fed = reader.feed(bytes_of(&chunk), records);
            fed.map_err(|error| errors::from_core(py, error))
        })?;
        Ok(self.ready.drain(..).collect())
    }

    fn close(&mut self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.collect(py, |reader, _, records| {
            let closed = reader.close(records);
            closed.map_err(|error| errors::from_core(py, error))
        })?;
        Ok(self.ready.drain(..).collect())
    }

    fn report(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let report = self.reader.report().to_data();
        Ok(self.builder.data(py, &report)?.unbind())
    }

    /// (dialect, version, confidence, why): the best guess so far, or None.
    #[getter]
    fn detection(&self) -> Option<(&'static str, Option<String>, f64, Vec<String>)> {
        let found = self.reader.detection()?;
        Some((
            found.dialect.name,
            found.version,
            found.confidence,
            found.why,
        ))
    }

    fn attach_path(&mut self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        self.feed = Some(Feed::path(py, path)?);
        Ok(())
    }

    #[cfg(unix)]
    fn attach_descriptor(&mut self, py: Python<'_>, number: i32, name: &str) -> PyResult<()> {
        self.feed = Some(Feed::descriptor(py, number, name)?);
        Ok(())
    }

    fn attach_chunks(&mut self, chunks: Py<PyAny>, name: &str) {
        self.feed = Some(Feed::chunks(chunks, name));
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Ok(Some(record));
            }
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
            if self.done {
                return Ok(None);
            }
            let more = self.collect(py, |reader, feed, records| match feed {
                Some(feed) => feed.step(py, &mut |chunk| reader.feed(chunk, records)),
                None => Ok(false),
            });
            match more {
                Ok(true) => {}
                Ok(false) => {
                    self.done = true;
                    self.feed = None;
                    let closed = self.collect(py, |reader, _, records| {
                        let closed = reader.close(records);
                        closed.map_err(|error| errors::from_core(py, error))
                    });
                    self.failed = closed.err();
                }
                Err(error) => {
                    self.done = true;
                    self.failed = Some(error);
                }
            }
        }
    }
}
