//! `Watch`: a growing file is read when the system tells that it has grown.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use headrace_core::source::watch;
use pyo3::prelude::*;

/// Tells when something happens to files of a folder. Raises ``OSError`` where that can't be told.
#[pyclass(frozen, module = "headrace._native")]
pub struct Watch {
    watch: watch::Watch,
}

#[pymethods]
impl Watch {
    #[new]
    fn new(folder: PathBuf) -> PyResult<Self> {
        let watch = watch::Watch::new(&folder)?;
        Ok(Watch { watch })
    }

    fn fileno(&self) -> i32 {
        self.watch.as_fd().as_raw_fd()
    }

    fn news_of(&self, name: &[u8]) -> PyResult<Option<bool>> {
        Ok(self.watch.news_of(name)?)
    }
}
