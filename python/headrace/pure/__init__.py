"""The pure-Python twin of the Rust core: the same modules, the same words, written to be read as the specification."""
