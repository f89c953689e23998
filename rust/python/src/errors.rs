//! The errors of `headrace.errors`, raised from here.

use headrace_core::record::Error;
use headrace_core::source::SourceError;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

fn class<'py>(py: Python<'py>, name: &'static str) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || {
        PyModule::import(py, "headrace.errors").map(Bound::unbind)
    })?;
    module.bind(py).getattr(name)
}

fn raise<'py>(
    py: Python<'py>,
    name: &'static str,
    arguments: impl pyo3::call::PyCallArgs<'py>,
) -> PyErr {
    let error = class(py, name).and_then(|class| class.call1(arguments));
    match error {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// A `SourceError` or `MalformedLine`.
pub fn from_core(py: Python<'_>, error: Error) -> PyErr {
    match error {
        Error::Malformed(line) => raise(py, "MalformedLine", (line.line, line.offset, line.reason)),
        Error::Source(error) => from_source(py, &error),
    }
}

pub fn from_source(py: Python<'_>, error: &SourceError) -> PyErr {
    let raised = raise(py, "SourceError", (error.to_string(),));
    if let SourceError::Open { error: cause, .. } | SourceError::Read { error: cause, .. } = error {
        let code = cause.raw_os_error();
        let cause = match code {
            Some(code) => PyOSError::new_err((code, cause.to_string())),
            None => PyOSError::new_err(cause.to_string()),
        };
        raised.set_cause(py, Some(cause));
    }
    raised
}

pub fn unknown_dialect(py: Python<'_>, name: &str) -> PyErr {
    let known: Vec<&str> = headrace_core::dialect::DIALECTS
        .iter()
        .map(|dialect| dialect.name)
        .collect();
    let text = format!(
        "no dialect is called {name:?}; known are: {}",
        known.join(", ")
    );
    raise(py, "UnknownDialect", (text,))
}
