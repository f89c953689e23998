//! The streams that the target `templates` reads, for a reader in another language: `tests/fuzz_twins.py` asks for them.
//!
//! `cargo run --release --example streams -- CORPUS SEED`, in rust/fuzz: one stream after the other, without end, each
//! behind its size in four bytes, the lowest first.

use std::error::Error;
use std::io::{self, BufWriter, Write};

use headrace_fuzz::{Case, Inputs};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, corpus, seed] = &arguments[..] else {
        return Err("usage: streams CORPUS SEED".into());
    };
    let mut inputs = Inputs::new(corpus.as_ref(), seed.parse()?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    loop {
        let input = inputs.next();
        let Some(case) = Case::new(&input) else {
            continue;
        };
        let stream = case.stream();
        let size = u32::try_from(stream.len())?;
        let written = out
            .write_all(&size.to_le_bytes())
            .and_then(|()| out.write_all(&stream));
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
    }
}
