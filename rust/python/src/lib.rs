//! `headrace._native`: the PyO3 surface of headrace-core and nothing else.
//!
//! `Engine` turns bytes into event dicts and a run, `Reader` bytes into `Record`s; both can be fed, or pull from a source
//! that was attached. What users see (`headrace.events`, `Run`, ...) is Python, shared with the pure backend.

mod borders;
mod decompress;
mod each;
mod early;
mod engine;
mod errors;
mod feed;
mod ffi;
mod given;
#[cfg(unix)]
mod live;
mod making;
mod mold;
mod objects;
mod prototype;
mod record;
mod shapes;
mod turns;
#[cfg(target_os = "linux")]
mod watch;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<borders::Borders>()?;
    module.add_class::<decompress::Decompress>()?;
    module.add_class::<each::Each>()?;
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
