//! Micro-workloads of the core for `benches/counts.py`, which runs them under callgrind on a file.
//!
//! `cargo run --release -p headrace-core --example counts -- WORKLOAD FILE`

use std::error::Error;

use headrace_core::event::Kinds;
use headrace_core::json::{Decoder, Tape};
use headrace_core::parser::{NoOutput, Parser};
use headrace_core::reader::{Reader, Records};
use headrace_core::record::{Options, Record};

struct Ignore;

impl Records for Ignore {
    fn record(&mut self, record: &Record<'_>) {
        std::hint::black_box(record.raw);
    }
}

/// As an intake does it.
fn decode(mut decoder: Decoder, mut text: &[u8]) {
    while !text.is_empty() {
        let taken = decoder.parse_line(text).map(|(doc, line)| {
            std::hint::black_box(doc.has_lone_surrogate());
            line.len()
        });
        let end = taken.or_else(|| memchr::memchr(b'\n', text));
        let end = end.unwrap_or(text.len());
        if taken.is_none() {
            std::hint::black_box(decoder.parse_unlike(&text[..end]).is_ok());
        }
        text = text.get(end + 1..).unwrap_or_default();
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, workload, file] = &arguments[..] else {
        return Err("usage: counts json|templates|general|records|reduce FILE".into());
    };
    let text = &std::fs::read(file)?[..];
    match workload.as_str() {
        "json" => {
            let mut tape = Tape::new();
            let mut start = 0;
            for end in memchr::memchr_iter(b'\n', text) {
                std::hint::black_box(tape.parse(&text[start..end]).is_ok());
                start = end + 1;
            }
        }
        "templates" => decode(Decoder::new(), text),
        "general" => decode(Decoder::without_templates(), text),
        "records" => {
            let mut reader = Reader::new(None, Options::default());
            reader.feed(text, &mut Ignore)?;
            reader.close(&mut Ignore)?;
        }
        "reduce" => {
            let mut parser = Parser::new(None, Kinds::NONE, Options::default());
            parser.feed(text, &mut NoOutput)?;
            parser.close(&mut NoOutput)?;
            std::hint::black_box(parser.report().bytes());
        }
        other => return Err(format!("no workload is called {other}").into()),
    }
    Ok(())
}
