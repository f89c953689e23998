//! headrace-core
