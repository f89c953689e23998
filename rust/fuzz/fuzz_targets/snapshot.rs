//! A parser that is stopped and restored goes on as if nothing had been, and no forged snapshot makes it panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| headrace_fuzz::check_snapshot(input));
