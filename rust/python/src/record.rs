//! `Reader` and `Record`: the raw layer.

use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;

use headrace_core::json::{Expected, Kept, Value};
use headrace_core::reader::{self, Records};
use headrace_core::record::{self, Options, native_type};
use headrace_core::report::Malformed;
use pyo3::exceptions::PyKeyError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::engine::{Found, found};
use crate::errors::Failure;
use crate::feed::{Feed, Input, Pull, buffer, bytes_of, not_negative};
use crate::given::Shared;
use crate::making::tell;
use crate::objects::{Builder, Layer};
use crate::turns::Turns;

/// One record; nothing of it is decoded that is not asked for.
#[pyclass(frozen, module = "headrace._native")]
pub struct Record {
    json: Kept,
    /// The dicts of the reader's records.
    given: Option<Py<Shared>>,
    /// The bytes as they came, where they are not those of the value: blanks around it, a text that was repaired.
    raw: Option<Box<[u8]>>,
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
    pub fn new(record: &record::Record<'_>, given: Option<Py<Shared>>) -> Self {
        let same = record.raw.len() == record.json.size() && !record.lossy;
        Record {
            json: Kept::new(&record.json),
            given,
            raw: (!same).then(|| record.raw.into()),
            line: record.line,
            offset: record.offset,
            lossy: record.lossy,
            salvaged: record.salvaged,
        }
    }

    fn raw_bytes(&self) -> &[u8] {
        match &self.raw {
            Some(raw) => raw,
            None => self.json.value().raw(),
        }
    }
}

fn object(py: Python<'_>, value: Value<'_>) -> PyResult<Py<PyAny>> {
    Builder::with(|builder| Ok(builder.value(py, value, Layer::Raw)?.unbind()))
}

#[pymethods]
impl Record {
    /// The bytes of its JSON text.
    #[getter]
    fn raw<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.raw_bytes())
    }

    /// What the harness calls this kind of record.
    #[getter]
    fn r#type<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        let kind = self.json.get("type").and_then(|kind| kind.as_str());
        let kind = kind.or_else(|| native_type(self.json.value()))?;
        Some(Builder::with(|builder| builder.name(py, &kind.lossy())))
    }

    /// All of it, as `json.loads` gives it: the last of repeated keys, lone surrogates kept, exact integers.
    fn to_dict(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let given = self.given.as_ref();
        let mut given = given.and_then(|given| given.get().get());
        Builder::with(|builder| {
            let dict = builder.record(py, &self.json, given.as_deref_mut())?;
            Ok(dict.unbind())
        })
    }

    fn __getitem__(&self, py: Python<'_>, key: &str) -> PyResult<Py<PyAny>> {
        match self.json.get(key) {
            Some(value) => object(py, value),
            None => Err(PyKeyError::new_err(key.to_owned())),
        }
    }

    fn __contains__(&self, key: &str) -> bool {
        self.json.get(key).is_some()
    }

    /// The value at a path of keys; None if it is not there.
    #[pyo3(signature = (*path))]
    fn get(&self, py: Python<'_>, path: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let mut value = path.is_empty().then(|| self.json.value());
        for (number, key) in path.iter_borrowed().enumerate() {
            let key = key.cast::<PyString>()?;
            let key = key.to_str().ok(); // None: no JSON text has such a key
            value = match number {
                0 => key.and_then(|key| self.json.get(key)),
                _ => value.and_then(|value| value.get(key?)),
            };
        }
        match value {
            Some(value) => object(py, value),
            None => Ok(py.None()),
        }
    }

    fn __repr__(&self) -> String {
        let kind = native_type(self.json.value()).map(|kind| kind.lossy());
        let (kind, size) = (kind.unwrap_or_default(), self.raw_bytes().len());
        let (line, offset) = (self.line, self.offset);
        format!("<Record {kind:?} line={line} offset={offset} bytes={size}>")
    }
}

#[pyclass(frozen, subclass, module = "headrace._native")]
pub struct Reader {
    stream: Turns<Stream>,
    given: Py<Shared>,
}

struct Stream {
    reader: reader::Reader,
    on_malformed: Option<Py<PyAny>>,
    pull: Pull,
}

struct Collector<'c, 'py> {
    py: Python<'py>,
    on_malformed: Option<&'c Py<PyAny>>,
    given: &'c Py<Shared>,
    out: &'c mut VecDeque<Py<PyAny>>,
    failed: Option<PyErr>,
}

impl Records for Collector<'_, '_> {
    fn record(&mut self, record: &record::Record<'_>) {
        if self.failed.is_none() {
            match Py::new(
                self.py,
                Record::new(record, Some(self.given.clone_ref(self.py))),
            ) {
                Ok(record) => self.out.push_back(record.into_any()),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    fn malformed(&mut self, line: &Malformed) {
        if let (Some(call), None) = (self.on_malformed, &self.failed) {
            self.failed = tell(self.py, call, line).err();
        }
    }
}

/// Gives the reader its input, and pushes the records onto the queue.
fn read(
    py: Python<'_>,
    reader: &mut reader::Reader,
    on_malformed: Option<&Py<PyAny>>,
    given: &Py<Shared>,
    input: Input<'_>,
    out: &mut VecDeque<Py<PyAny>>,
) -> Result<Option<usize>, Failure> {
    let mut collector = Collector {
        py,
        on_malformed,
        given,
        out,
        failed: None,
    };
    if matches!(input, Input::End) {
        given.get().close();
    }
    let result = match input {
        Input::Bytes(chunk) => reader.feed(chunk, &mut collector).map(|()| None),
        Input::Decoded(piece, from, about) => {
            reader.feed_decoded(piece, from, about, &mut collector)
        }
        Input::End => reader.close(&mut collector).map(|()| None),
    };
    match collector.failed {
        Some(error) => Err(error.into()),
        None => Ok(result?),
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.given.get().close();
    }
}

impl Reader {
    fn read_now(&self, py: Python<'_>, input: Input<'_>) -> PyResult<Vec<Py<PyAny>>> {
        let mut out = VecDeque::new();
        let mut turn = self.stream.take(py)?;
        let Stream {
            reader,
            on_malformed,
            ..
        } = &mut *turn;
        let given = &self.given;
        match read(py, reader, on_malformed.as_ref(), given, input, &mut out) {
            Ok(_) => Ok(out.into()),
            Err(failure) => Err(failure.raise(py, None)),
        }
    }
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (*, only=None, strict=false, max_line_bytes=268_435_456, on_malformed=None))]
    fn new(
        py: Python<'_>,
        only: Option<HashSet<String>>,
        strict: bool,
        max_line_bytes: i64,
        on_malformed: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let options = Options {
            strict,
            max_line_bytes: not_negative(max_line_bytes, "max_line_bytes")?,
        };
        Ok(Reader {
            stream: Turns::new(Stream {
                reader: reader::Reader::new(only, options),
                on_malformed,
                pull: Pull::default(),
            }),
            given: Py::new(py, Shared::default())?,
        })
    }

    fn feed(&self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<Vec<Py<PyAny>>> {
        let chunk = buffer(chunk)?;
        self.read_now(py, Input::Bytes(bytes_of(&chunk)))
    }

    fn close(&self, py: Python<'_>) -> PyResult<Vec<Py<PyAny>>> {
        self.read_now(py, Input::End)
    }

    fn report(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let stream = self.stream.take(py)?;
        let report = stream.reader.report().to_data();
        Builder::with(|builder| Ok(builder.data(py, &report)?.unbind()))
    }

    /// (dialect, version, confidence, why): the best guess so far, or None.
    #[getter]
    fn detection(&self, py: Python<'_>) -> PyResult<Option<Found>> {
        let best = self.stream.take(py)?.reader.detection();
        Ok(best.as_ref().map(found))
    }

    fn attach_path(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let name = path.display().to_string();
        let feed = Feed::path(py, path, Expected::default())?;
        self.stream.take(py)?.pull.attach(feed, &name);
        Ok(())
    }

    #[cfg(unix)]
    fn attach_descriptor(&self, py: Python<'_>, number: i32, name: &str) -> PyResult<()> {
        let feed = Feed::descriptor(py, number, name, Expected::default())?;
        self.stream.take(py)?.pull.attach(feed, name);
        Ok(())
    }

    fn attach_chunks(&self, py: Python<'_>, chunks: Py<PyAny>, name: &str) -> PyResult<()> {
        let feed = Feed::chunks(chunks, name);
        self.stream.take(py)?.pull.attach(feed, name);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.given.get().traverse(&visit)
    }

    fn __clear__(&self) {
        self.given.get().close();
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let mut turn = self.stream.take(py)?;
        let Stream {
            reader,
            on_malformed,
            pull,
        } = &mut *turn;
        let given = &self.given;
        pull.next(py, &mut |input, out| {
            read(py, reader, on_malformed.as_ref(), given, input, out)
        })
    }
}
