//! `headrace._native`: the PyO3 surface of headrace-core and nothing else.
//!
//! `Engine` turns bytes into event dicts and a run, `Reader` bytes into `Record`s; both can be fed, or pull from a source
//! that was attached. What users see (`headrace.events`, `Run`, ...) is Python, shared with the pure backend.

mod borders;
mod engine;
mod errors;
mod feed;
mod ffi;
mod given;
#[cfg(unix)]
mod live;
mod mold;
mod objects;
mod prototype;
mod record;
mod shapes;
#[cfg(target_os = "linux")]
mod watch;

use pyo3::prelude::*;

/// Events are many small allocations that are soon freed; the system's allocator takes a tenth of the time of mixed
/// streams more.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Has glibc, which allocates Python's long strings, keep some megabytes of freed memory: before it has seen something
/// big freed it gives back all but 128 kB at once, and each long string is made in memory that is new.
fn keep_freed_memory(py: Python<'_>) {
    const SIZE: isize = 1 << 22;
    // SAFETY: the interpreter is attached; bytes of no content are allocated, not read, and dropped; null may be.
    unsafe { pyo3::ffi::Py_XDECREF(pyo3::ffi::PyBytes_FromStringAndSize(std::ptr::null(), SIZE)) };
    drop(PyErr::take(py)); // that there is no memory will be said when some is needed
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    keep_freed_memory(module.py());
    module.add_class::<borders::Borders>()?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<record::Reader>()?;
    module.add_class::<record::Record>()?;
    #[cfg(unix)]
    {
        module.add_class::<live::Intake>()?;
        module.add_class::<live::Loan>()?;
        module.add_class::<live::Tap>()?;
    }
    #[cfg(target_os = "linux")]
    module.add_class::<watch::Watch>()?;
    let names: Vec<&str> = headrace_core::dialect::DIALECTS
        .iter()
        .map(|dialect| dialect.name)
        .collect();
    module.add("DIALECTS", names)
}
