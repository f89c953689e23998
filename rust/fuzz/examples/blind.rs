//! The target `templates` without instruments, which runs it many times as fast: inputs of its corpus with a few bytes
//! changed at random, one after the other; seven of eight are for the decoder alone.
//!
//! `cargo run --release --example blind -- corpus/templates RUNS SEED`, in rust/fuzz.

use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, corpus, runs, seed] = &arguments[..] else {
        return Err("usage: blind CORPUS RUNS SEED".into());
    };
    let runs: u64 = runs.parse()?;
    let mut state: u64 = seed.parse::<u64>()?.max(1);
    let mut below = |bound: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    };
    let files = std::fs::read_dir(corpus)?.map(|file| std::fs::read(file?.path()));
    let inputs: Vec<Vec<u8>> = files.collect::<Result<_, _>>()?;
    if inputs.is_empty() {
        return Err("the corpus is empty: run the target first".into());
    }
    let start = Instant::now();
    for run in 1..=runs {
        let mut input = inputs[below(inputs.len())].clone();
        for _ in 0..below(6) {
            let at = below(input.len() + 1);
            match below(4) {
                0 => input.insert(at, below(256) as u8),
                1 if at < input.len() => drop(input.remove(at)),
                2 => {
                    let other = &inputs[below(inputs.len())];
                    input.truncate(at);
                    input.extend(&other[at.min(other.len())..]);
                }
                _ if at < input.len() => input[at] = below(256) as u8,
                _ => {}
            }
        }
        // The parser takes many times as long as the decoder.
        if run % 8 != 0
            && let Some(options) = input.get_mut(1)
        {
            *options |= 1;
        }
        let failed = std::panic::catch_unwind(|| headrace_fuzz::check(&input)).is_err();
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
