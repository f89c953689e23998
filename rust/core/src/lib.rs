//! headrace-core

pub mod frame;
pub mod json;
pub mod record;
pub mod report;
pub mod source;
