//! `Borders`: where the runs of a source begin.

use headrace_core::borders;
use headrace_core::dialect;
use headrace_core::record::Error;
use pyo3::prelude::*;

use crate::errors;
use crate::feed::{buffer, bytes_of, not_negative};

#[pyclass(module = "headrace._native")]
pub struct Borders {
    borders: borders::Borders,
    /// What messages call the source.
    source: Option<String>,
}

impl Borders {
    fn error(&self, py: Python<'_>, error: Error) -> PyErr {
        errors::from_core(py, error, self.source.as_deref())
    }
}

#[pymethods]
impl Borders {
    #[new]
    #[pyo3(signature = (*, dialect=None, max_line_bytes=268_435_456, source=None))]
    fn new(
        py: Python<'_>,
        dialect: Option<&str>,
        max_line_bytes: i64,
        source: Option<String>,
    ) -> PyResult<Self> {
        let max_line_bytes = not_negative(max_line_bytes, "max_line_bytes")?;
        let dialect = match dialect {
            Some(name) => {
                let found = dialect::named(name);
                Some(found.ok_or_else(|| errors::unknown_dialect(py, name))?)
            }
            None => None,
        };
        Ok(Borders {
            borders: borders::Borders::new(dialect, max_line_bytes),
            source,
        })
    }

    /// The (line, offset) of each border that the lines in these bytes show.
    fn feed(&mut self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<Vec<borders::Place>> {
        let chunk = buffer(chunk)?;
        let found = self.borders.feed(bytes_of(&chunk));
        found.map_err(|error| self.error(py, error))
    }

    /// The borders that only the end of the source shows.
    fn close(&mut self, py: Python<'_>) -> PyResult<Vec<borders::Place>> {
        let found = self.borders.close();
        found.map_err(|error| self.error(py, error))
    }

    /// The offset before which no more border can come to be.
    #[getter]
    fn certain(&self) -> u64 {
        self.borders.certain()
    }
}
