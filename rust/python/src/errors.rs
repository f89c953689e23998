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

/// A `SourceError` or `MalformedLine`. A parser does not know what it is fed from: `source` is the name of that, if there is
/// one.
pub fn from_core(py: Python<'_>, error: Error, source: Option<&str>) -> PyErr {
    match (error, source) {
        (Error::Malformed(line), _) => raise(
            py,
            "MalformedLine",
            (line.line, line.offset, line.reason, source),
        ),
        (Error::Source(error @ SourceError::Utf16(_)), Some(name)) => {
            raise(py, "SourceError", (format!("{name}: {error}"),))
        }
        (Error::Source(error), _) => from_source(py, &error),
    }
}

pub fn from_source(py: Python<'_>, error: &SourceError) -> PyErr {
    let raised = raise(py, "SourceError", (error.to_string(),));
    if let SourceError::Open { error: cause, .. } | SourceError::Read { error: cause, .. } = error {
        raised.set_cause(py, Some(os_error(cause)));
    }
    raised
}

/// What a fork has cut off from its thread.
pub fn forked(py: Python<'_>) -> PyErr {
    let text = "another thread was parsing this stream when the process was forked, and it is not here; open the \
                source again in the child process";
    raise(py, "SourceError", (text,))
}

/// A thread asks in the middle of what it has asked for.
pub fn within(py: Python<'_>) -> PyErr {
    let text = "this stream is in the middle of a step, and what it calls there (on_malformed, the source's own code, a \
                signal handler) can't ask it for anything: keep what you need, and ask when the step is over";
    raise(py, "HeadraceError", (text,))
}

pub fn snapshot(py: Python<'_>, text: &str) -> PyErr {
    raise(py, "SnapshotError", (text,))
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

/// What ends a step: an error of the core, or one raised by Python code that was called.
pub enum Failure {
    Core(Error),
    Python(PyErr),
}

impl Failure {
    /// See [`from_core`].
    pub fn raise(self, py: Python<'_>, source: Option<&str>) -> PyErr {
        match self {
            Failure::Core(error) => from_core(py, error, source),
            Failure::Python(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Core(error)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Failure::Core(error.into())
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

/// A `SpillError`, or a `SourceError` for everything else.
#[cfg(unix)]
pub fn from_live(py: Python<'_>, error: &headrace_core::source::live::LiveError) -> PyErr {
    use headrace_core::source::live::LiveError;
    let class = match error {
        LiveError::Spill { .. } => "SpillError",
        _ => "SourceError",
    };
    let raised = raise(py, class, (error.to_string(),));
    if let LiveError::Spill { error: cause, .. }
    | LiveError::Read { error: cause, .. }
    | LiveError::Open { error: cause, .. } = error
    {
        raised.set_cause(py, Some(os_error(cause)));
    }
    raised
}

/// A `SpillError`: nothing could ever be spilled there.
#[cfg(unix)]
pub fn no_folder(py: Python<'_>, path: &std::path::Path) -> PyErr {
    let message = format!("spill_dir {path:?} is no folder");
    raise(py, "SpillError", (message,))
}

fn os_error(cause: &std::io::Error) -> PyErr {
    match cause.raw_os_error() {
        Some(code) => PyOSError::new_err((code, cause.to_string())),
        None => PyOSError::new_err(cause.to_string()),
    }
}
