//! JSON libraries on the lines of agent streams: each line is parsed as a whole document, then its `type` is read.
//!
//! `cargo bench -p headrace-core --bench json_libraries -- FILE...`
//!
//! Rounds go over the libraries in turn, so that a busy machine is busy for all of them. The ratio is one of medians.

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

const READERS: [(&str, Reader); 6] = [
    ("headrace", headrace),
    ("headrace, three paths", headrace_paths),
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

/// What a mapper of pi looks at first: three paths, five look-ups.
fn headrace_paths(lines: &[&[u8]]) -> Pass {
    let mut pass = Pass::default();
    let mut tape = Tape::new();
    for line in lines {
        pass.add(match tape.parse(line) {
            Ok(doc) => {
                let root = doc.root();
                black_box(root.path(&["usage", "output"]).and_then(|v| v.as_u64()));
                black_box(
                    root.path(&["assistantMessageEvent", "delta"])
                        .and_then(|v| v.text()),
                );
                Ok(root
                    .get("type")
                    .and_then(|v| v.text())
                    .map_or(0, |text| text.len()))
            }
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
    for times in &mut times {
        times.sort();
    }
    let speed = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e6;
    let median = |i: usize| times[i][ROUNDS / 2];
    println!(
        "{:<24} {:>9} {:>12} {:>10} {:>9} {:>12}",
        "", "best MB/s", "median MB/s", "time ratio", "refused", "type bytes"
    );
    for (i, (name, _)) in READERS.iter().enumerate() {
        let ratio = median(i).as_secs_f64() / median(0).as_secs_f64();
        println!(
            "{name:<24} {:>9.0} {:>12.0} {ratio:>10.2} {:>9} {:>12}",
            speed(times[i][0]),
            speed(median(i)),
            passes[i].refused,
            passes[i].type_bytes
        );
    }
}
