//! `Borders`: where the runs of a source begin.

use headrace_core::borders;
use headrace_core::dialect;
use pyo3::prelude::*;

use crate::errors;
use crate::feed::{buffer, bytes_of, not_negative};

#[pyclass(module = "headrace._native")]
pub struct Borders(borders::Borders);

#[pymethods]
impl Borders {
    #[new]
    #[pyo3(signature = (*, dialect=None, max_line_bytes=268_435_456))]
    fn new(py: Python<'_>, dialect: Option<&str>, max_line_bytes: i64) -> PyResult<Self> {
        let max_line_bytes = not_negative(max_line_bytes, "max_line_bytes")?;
        let dialect = match dialect {
            Some(name) => {
                let found = dialect::named(name);
                Some(found.ok_or_else(|| errors::unknown_dialect(py, name))?)
            }
            None => None,
        };
        Ok(Borders(borders::Borders::new(dialect, max_line_bytes)))
    }

    /// The (line, offset) of each border that the lines in these bytes show.
    fn feed(&mut self, py: Python<'_>, chunk: &Bound<'_, PyAny>) -> PyResult<Vec<borders::Place>> {
        let chunk = buffer(chunk)?;
        let found = self.0.feed(bytes_of(&chunk));
        found.map_err(|error| errors::from_core(py, error, None))
    }

    /// The borders that only the end of the source shows.
    fn close(&mut self, py: Python<'_>) -> PyResult<Vec<borders::Place>> {
        self.0
            .close()
            .map_err(|error| errors::from_core(py, error, None))
    }

    /// The offset before which no more border can come to be.
    #[getter]
    fn certain(&self) -> u64 {
        self.0.certain()
    }
}
