//! headrace-core

pub mod json;
