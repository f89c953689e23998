//! [`Pattern::fit_plain`] for processors with AVX2: 32 bytes at a time. What is rare, or near the end of the text, is done
//! the plain way.
//!
//! The `unsafe` here is of reads in the text and in the blocks of the pattern. They are not checked one by one: a step
//! is only tried where all that it reads is there.

use super::super::scan::wide::{digits, high, same, stops};
use super::super::tape::INTEGER;
use super::*;

/// Why the fast way stops within a pattern.
enum Halt {
    /// The text differs.
    Differs,
    /// Near the end of the text, the whole step is to be done the plain way.
    Near,
    /// The number that begins here is no short and simple one.
    Number,
    /// Of the string that begins here, what follows from this offset on is not plain, or not near; or it is not ASCII.
    String(usize),
}

impl Pattern {
    /// As [`fit_plain`](Pattern::fit_plain).
    #[target_feature(enable = "avx2")]
    pub(super) fn fit_wide(&self, text: &[u8], slots: &mut Slots) -> Result<usize, (usize, usize)> {
        let (mut number, mut at) = (0, 0);
        loop {
            let Err(halt) = self.fit_fast(text, slots, &mut number, &mut at) else {
                return Ok(at);
            };
            let (Some(step), Some(slot)) = (self.steps.get(number), slots.get_mut(number)) else {
                return Err((number, at));
            };
            let end = match halt {
                Halt::Differs => None,
                Halt::Near => step.fit(&self.blocks, text, at, slot),
                Halt::Number => any_number(text, at, slot),
                Halt::String(stop) => any_string(text, at, stop, slot),
            };
            at = end.ok_or((number, at))?;
            number += 1;
        }
    }

    /// The steps from `number` on, at `at`: as many as the fast way can. These two say where it halts: at a number or a
    /// string, behind the literal before it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn fit_fast(
        &self,
        text: &[u8],
        slots: &mut Slots,
        number: &mut usize,
        at: &mut usize,
    ) -> Result<(), Halt> {
        let steps = self.steps.get(*number..).unwrap_or_default();
        for (step, slot) in steps.iter().zip(&mut slots[*number..]) {
            let len = step.len as usize;
            let wide = len.next_multiple_of(BLOCK);
            if text.len() - *at < wide + BLOCK {
                return Err(Halt::Near);
            }
            // SAFETY: a literal is not empty, and has as many blocks as its bytes take up, from `step.block` on. As many
            // bytes are left of the text.
            let differs = unsafe {
                let mine = self.blocks.as_ptr().add(step.block as usize);
                let here = text.as_ptr().add(*at).cast::<Block>();
                let last = wide / BLOCK - 1;
                (0..last).any(|at| !same(&*mine.add(at), &*here.add(at), u32::MAX))
                    || !same(&*mine.add(last), &*here.add(last), step.last)
            };
            if differs {
                return Err(Halt::Differs);
            }
            *at += len;
            *at = match step.slot {
                Slot::End => return Ok(()),
                Slot::Number => {
                    // SAFETY: a block more was left than those of the literal, and that is no longer than they are.
                    let block = unsafe { &*text.as_ptr().add(*at).cast() };
                    let (len, info) = number_in(block).ok_or(Halt::Number)?;
                    *slot = node(*at, *at + len, info);
                    *at + len
                }
                Slot::String => {
                    let end = string_at(text, *at).map_err(Halt::String)?;
                    *slot = node(*at - 1, end, 0);
                    end
                }
            };
            *number += 1;
        }
        Ok(())
    }
}

/// The offset behind the string whose quote is before `at`, if it is plain ASCII and not long; or else where it has what
/// is not plain.
#[inline]
#[target_feature(enable = "avx2")]
fn string_at(text: &[u8], at: usize) -> Result<usize, usize> {
    const NEAR: usize = 4 * BLOCK;
    let mut from = at;
    let mut not_ascii = 0;
    while from < at + NEAR && text.len() - from >= BLOCK {
        // SAFETY: a block is left at `from`.
        let block = unsafe { &*text.as_ptr().add(from).cast::<Block>() };
        let (ends, highs) = (stops(block), high(block));
        if ends != 0 {
            let first = ends.trailing_zeros() as usize;
            // Those before the first stop, which is ASCII itself.
            not_ascii |= highs & (ends ^ (ends - 1));
            return match not_ascii == 0 && block[first % BLOCK] == b'"' {
                true => Ok(from + first + 1),
                false => Err(from + first),
            };
        }
        not_ascii |= highs;
        from += BLOCK;
    }
    Err(plain_text_end(text, from).0)
}

/// The length and the flags of the number at the start of a block, if it has neither sign nor exponent and ends there.
#[inline]
#[target_feature(enable = "avx2")]
fn number_in(block: &Block) -> Option<(usize, u32)> {
    let digits = digits(block);
    let whole = (!digits).trailing_zeros() as usize;
    if whole == 0 || whole > BLOCK - 3 || whole > 1 && block[0] == b'0' {
        return None;
    }
    let (mut len, mut info) = (whole, INTEGER);
    if block[len] == b'.' {
        let places = (!(digits >> (whole + 1))).trailing_zeros() as usize;
        len += 1 + places;
        info = 0;
        if places == 0 || len >= BLOCK {
            return None;
        }
    }
    (block[len] | 0x20 != b'e').then_some((len, info))
}
