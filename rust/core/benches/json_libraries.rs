//! JSON libraries on the lines of agent streams: each line is parsed as a whole document, then its `type` is read.
//!
//! `cargo bench -p headrace-core --bench json_libraries -- FILE...`
//!
//! Rounds go over the libraries in turn, so that a busy machine is busy for all of them; medians are printed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use headrace_core::json::Tape;
use simd_json::prelude::*;
use sonic_rs::JsonValueTrait;

const ROUNDS: usize = 9;

/// What one pass over all lines found. The libraries must agree on the sum where they refuse nothing.
#[derive(Default)]
struct Pass {
    refused: usize,
    type_bytes: usize,
}

impl Pass {
    fn add(&mut self, line: Result<usize, ()>) {
        match line {
            Ok(type_bytes) => self.type_bytes += type_bytes,
            Err(()) => self.refused += 1,
        }
    }
}

type Reader = fn(&[&[u8]]) -> Pass;

const READERS: [(&str, Reader); 5] = [
    ("headrace", headrace),
    ("sonic-rs Value", sonic_value),
    ("sonic-rs LazyValue", sonic_lazy),
    ("simd-json tape", simd_tape),
    ("simd-json BorrowedValue", simd_value),
];

fn headrace(lines: &[&[u8]]) -> Pass {
    let mut pass = Pass::default();
    let mut tape = Tape::new();
    for line in lines {
        pass.add(match tape.parse(line) {
            Ok(doc) => Ok(doc
                .root()
                .get("type")
                .and_then(|v| v.text())
                .map_or(0, |text| text.len())),
            Err(_) => Err(()),
        });
    }
    pass
}

fn sonic_value(lines: &[&[u8]]) -> Pass {
    let mut pass = Pass::default();
    for line in lines {
        pass.add(match sonic_rs::from_slice::<sonic_rs::Value>(line) {
            Ok(value) => Ok(value
                .get("type")
                .and_then(|v| v.as_str())
                .map_or(0, str::len)),
            Err(_) => Err(()),
        });
    }
    pass
}

/// Skips to the end of the value with its structure checked and nothing kept, then searches it again.
fn sonic_lazy(lines: &[&[u8]]) -> Pass {
    let mut pass = Pass::default();
    for line in lines {
        pass.add(match sonic_rs::from_slice::<sonic_rs::LazyValue>(line) {
            Ok(value) => Ok(value
                .get("type")
                .and_then(|v| v.as_str().map(str::len))
                .unwrap_or(0)),
            Err(_) => Err(()),
        });
    }
    pass
}

/// simd-json writes into its input, so a line that must stay is copied first.
fn simd_tape(lines: &[&[u8]]) -> Pass {
    let mut pass = Pass::default();
    let mut buffers = simd_json::Buffers::default();
    let mut copy = Vec::new();
    for line in lines {
        copy.clear();
        copy.extend_from_slice(line);
        pass.add(
            match simd_json::to_tape_with_buffers(&mut copy, &mut buffers) {
                Ok(tape) => Ok(tape
                    .as_value()
                    .get("type")
                    .and_then(|v| v.as_str().map(str::len))
                    .unwrap_or(0)),
                Err(_) => Err(()),
            },
        );
    }
    pass
}

fn simd_value(lines: &[&[u8]]) -> Pass {
    let mut pass = Pass::default();
    let mut buffers = simd_json::Buffers::default();
    let mut copy = Vec::new();
    for line in lines {
        copy.clear();
        copy.extend_from_slice(line);
        pass.add(
            match simd_json::to_borrowed_value_with_buffers(&mut copy, &mut buffers) {
                Ok(value) => Ok(value
                    .get("type")
                    .and_then(|v| v.as_str())
                    .map_or(0, str::len)),
                Err(_) => Err(()),
            },
        );
    }
    pass
}

fn main() {
    let files: Vec<_> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    for file in files {
        let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let lines: Vec<&[u8]> = bytes
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .filter(|line| !line.trim_ascii().is_empty())
            .collect();
        let name = std::path::Path::new(&file)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        println!(
            "\n{name}: {} lines, {:.1} MB, {ROUNDS} rounds",
            lines.len(),
            bytes.len() as f64 / 1e6
        );
        compare(&lines, bytes.len());
    }
}

fn compare(lines: &[&[u8]], bytes: usize) {
    let mut times: [Vec<Duration>; READERS.len()] = Default::default();
    let mut passes: [Pass; READERS.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (i, (_, read)) in READERS.iter().enumerate() {
            let start = Instant::now();
            passes[i] = black_box(read(black_box(lines)));
            times[i].push(start.elapsed());
        }
    }
    let medians = times.map(|mut times| {
        times.sort();
        times[ROUNDS / 2].as_secs_f64()
    });
    println!(
        "{:<24} {:>7} {:>8} {:>9} {:>12}",
        "", "MB/s", "ratio", "refused", "type bytes"
    );
    for (((name, _), median), pass) in READERS.iter().zip(medians).zip(&passes) {
        let speed = bytes as f64 / median / 1e6;
        let ratio = median / medians[0];
        println!(
            "{name:<24} {speed:>7.0} {ratio:>8.2} {:>9} {:>12}",
            pass.refused, pass.type_bytes
        );
    }
}
