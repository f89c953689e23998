//! The target `templates` or `snapshot` without instruments, which runs it many times as fast: inputs of its corpus with a
//! few bytes changed at random, one after the other; seven of eight of `templates` are for the decoder alone.
//!
//! `cargo run --release --example blind -- templates corpus/templates RUNS SEED`, in rust/fuzz.

use std::error::Error;
use std::time::Instant;

use headrace_fuzz::Inputs;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, target, corpus, runs, seed] = &arguments[..] else {
        return Err("usage: blind TARGET CORPUS RUNS SEED".into());
    };
    let check = match &target[..] {
        "templates" => headrace_fuzz::check,
        "snapshot" => headrace_fuzz::check_snapshot,
        _ => return Err("TARGET is templates or snapshot".into()),
    };
    let runs: u64 = runs.parse()?;
    let mut inputs = Inputs::new(corpus.as_ref(), seed.parse()?)?;
    let start = Instant::now();
    for run in 1..=runs {
        let mut input = inputs.next();
        // The parser takes many times as long as the decoder.
        if target == "templates"
            && run % 8 != 0
            && let Some(options) = input.get_mut(1)
        {
            *options |= 1;
        }
        let failed = std::panic::catch_unwind(|| check(&input)).is_err();
        if failed {
            std::fs::write("blind-failure", &input)?;
            return Err(format!("run {run} differs: see blind-failure").into());
        }
        if run % (runs / 10).max(1) == 0 {
            let seconds = start.elapsed().as_secs_f64();
            println!("{run} runs, {:.0} a second", run as f64 / seconds);
        }
    }
    Ok(())
}
