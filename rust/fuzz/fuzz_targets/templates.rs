//! Templates change no result: streams of records that are alike are read with them and without them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| headrace_fuzz::check(input));
