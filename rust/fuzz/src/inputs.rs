//! Inputs of a corpus with a few bytes changed at random.

use std::io;
use std::path::Path;

/// One input after the other, the same ones for the same seed.
pub struct Inputs {
    corpus: Vec<Vec<u8>>,
    state: u64,
}

impl Inputs {
    pub fn new(corpus: &Path, seed: u64) -> io::Result<Self> {
        let mut paths: Vec<_> = std::fs::read_dir(corpus)?
            .map(|file| Ok(file?.path()))
            .collect::<io::Result<_>>()?;
        paths.sort(); // a folder is in no order
        let corpus: Vec<Vec<u8>> = paths.iter().map(std::fs::read).collect::<io::Result<_>>()?;
        if corpus.is_empty() {
            return Err(io::Error::other(
                "the corpus is empty: run the target first",
            ));
        }
        let state = seed.max(1);
        Ok(Inputs { corpus, state })
    }

    pub fn next(&mut self) -> Vec<u8> {
        let any = self.below(self.corpus.len());
        let mut input = self.corpus[any].clone();
        for _ in 0..self.below(6) {
            let at = self.below(input.len() + 1);
            match self.below(4) {
                0 => input.insert(at, self.below(256) as u8),
                1 if at < input.len() => drop(input.remove(at)),
                2 => {
                    let any = self.below(self.corpus.len());
                    let other = &self.corpus[any];
                    input.truncate(at);
                    input.extend(&other[at.min(other.len())..]);
                }
                _ if at < input.len() => input[at] = self.below(256) as u8,
                _ => {}
            }
        }
        input
    }

    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}
