//! `headrace._native`: the PyO3 surface of headrace-core and nothing else.
use pyo3::prelude::*;

#[pymodule]
fn _native(_module: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
