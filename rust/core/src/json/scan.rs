//! Finds the end of a plain stretch of string or of digits, and compares short slices, many bytes at a time.
//!
//! The `unsafe` here is of vector loads, each inside bounds that the line above it has checked.

/// Offset of the first byte at or after `from` that is `"`, `\` or below 0x20; the length of the text if there is none.
#[inline(always)]
pub(crate) fn plain_end(text: &[u8], from: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        x86::plain_end(text, from)
    }
    #[cfg(target_arch = "aarch64")]
    {
        arm::plain_end(text, from)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        swar::plain_end(text, from)
    }
}

/// [`plain_end`], and whether all before it is known to be ASCII. A long stretch is not looked at for that.
#[inline(always)]
pub(super) fn plain_text_end(text: &[u8], from: usize) -> (usize, bool) {
    #[cfg(target_arch = "x86_64")]
    {
        x86::plain_text_end(text, from)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let end = plain_end(text, from);
        (end, text[from..end].is_ascii())
    }
}

/// Whether two slices are the same. They are short, and mostly are: a loop beats a call of `memcmp`.
#[inline(always)]
pub(super) fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    let len = a.len();
    if len != b.len() {
        return false;
    }
    match len {
        32.. => {
            // The last, which may overlap those before, and then the others from the front.
            let (fronts, _) = a.as_chunks::<32>();
            let (others, _) = b.as_chunks::<32>();
            a.last_chunk::<32>() == b.last_chunk::<32>()
                && fronts.iter().zip(others).all(|(a, b)| a == b)
        }
        16.. => {
            a.first_chunk::<16>() == b.first_chunk::<16>()
                && a.last_chunk::<16>() == b.last_chunk::<16>()
        }
        8.. => {
            a.first_chunk::<8>() == b.first_chunk::<8>()
                && a.last_chunk::<8>() == b.last_chunk::<8>()
        }
        4.. => {
            a.first_chunk::<4>() == b.first_chunk::<4>()
                && a.last_chunk::<4>() == b.last_chunk::<4>()
        }
        _ => a.iter().zip(b).all(|(a, b)| a == b),
    }
}

/// Offset of the first byte at or after `from` that is no decimal digit.
///
/// Most numbers are short: one step over eight bytes beats a loop whose length the processor has to guess.
#[inline(always)]
pub(super) fn digits_end(text: &[u8], from: usize) -> usize {
    match digits_stop(text, from) {
        Some(stop) if stop < 8 => from + stop,
        _ => long_digits_end(text, from),
    }
}

/// Digits beyond the first eight, or near the end of the text.
#[inline(never)]
fn long_digits_end(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(stop) = digits_stop(text, at) {
        if stop < 8 {
            return at + stop;
        }
        at += 8;
    }
    let digits = text[at..].iter().take_while(|byte| byte.is_ascii_digit());
    at + digits.count()
}

/// How many of the next eight bytes are digits before one that is none; None if there are no eight.
#[inline(always)]
fn digits_stop(text: &[u8], from: usize) -> Option<usize> {
    const ZEROS: u64 = u64::MAX / 255 * b'0' as u64;
    const SIXES: u64 = u64::MAX / 255 * 6;
    const HIGH_NIBBLES: u64 = u64::MAX / 255 * 0xf0;
    let bytes = text.get(from..from + 8)?.first_chunk()?;
    // A digit becomes 0 to 9, and only those stay below 0x10 with 6 added. A carry reaches later bytes only.
    let value = u64::from_le_bytes(*bytes) ^ ZEROS;
    let stops = (value | value.wrapping_add(SIXES)) & HIGH_NIBBLES;
    Some(stops.trailing_zeros() as usize / 8)
}

/// Eight bytes at a time in a plain register. The vector code ends with it: it needs no room after the text.
mod swar {
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES << 7;

    /// The high bit of each byte that stops a stretch. A borrow can set bits above a true one, never below it, so
    /// the lowest set bit is always right.
    #[inline(always)]
    fn stops(word: u64) -> u64 {
        let quote = word ^ (ONES * b'"' as u64);
        let backslash = word ^ (ONES * b'\\' as u64);
        let below = word.wrapping_sub(ONES * 0x20) & !word;
        let quote = quote.wrapping_sub(ONES) & !quote;
        let backslash = backslash.wrapping_sub(ONES) & !backslash;
        (below | quote | backslash) & HIGHS
    }

    pub(super) fn plain_end(text: &[u8], from: usize) -> usize {
        let mut at = from;
        while let Some(chunk) = text.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
            let stops = stops(u64::from_le_bytes(*chunk));
            if stops != 0 {
                return at + stops.trailing_zeros() as usize / 8;
            }
            at += 8;
        }
        while let Some(&byte) = text.get(at) {
            if byte == b'"' || byte == b'\\' || byte < 0x20 {
                return at;
            }
            at += 1;
        }
        text.len()
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    /// The first 32 bytes inline with SSE2, which every x86-64 has: most strings of a record end there.
    #[inline(always)]
    pub(super) fn plain_end(text: &[u8], from: usize) -> usize {
        if text.len() < 32 || from > text.len() - 32 {
            return super::swar::plain_end(text, from);
        }
        // SAFETY: SSE2 is in the x86-64 baseline, and `from + 32 <= text.len()` holds here.
        let stops = unsafe { stops16(text.as_ptr().add(from)) };
        if stops != 0 {
            return from + stops.trailing_zeros() as usize;
        }
        // SAFETY: as above.
        let stops = unsafe { stops16(text.as_ptr().add(from + 16)) };
        if stops != 0 {
            return from + 16 + stops.trailing_zeros() as usize;
        }
        long(text, from + 32)
    }

    /// Most strings of a record that vary are short, and those that are not are mostly ids of 36 bytes.
    #[inline(always)]
    pub(super) fn plain_text_end(text: &[u8], from: usize) -> (usize, bool) {
        let mut at = from;
        let mut is_ascii = true;
        while at < from + 64 && text.len().saturating_sub(at) >= 16 {
            // SAFETY: SSE2 is in the x86-64 baseline, and 16 bytes are left at `at`.
            let (stops, high) = unsafe {
                let bytes = text.as_ptr().add(at);
                (
                    stops16(bytes),
                    _mm_movemask_epi8(_mm_loadu_si128(bytes.cast())) as u32,
                )
            };
            if stops != 0 {
                let before = stops ^ (stops - 1);
                return (
                    at + stops.trailing_zeros() as usize,
                    is_ascii && high & before == 0,
                );
            }
            is_ascii &= high == 0;
            at += 16;
        }
        // Long, or the end of the text is near.
        if text.len().saturating_sub(at) >= 16 {
            return (super::plain_end(text, at), false);
        }
        let end = super::swar::plain_end(text, at);
        let high = text[at..end].iter().fold(0, |high, byte| high | byte);
        (end, is_ascii && high < 0x80)
    }

    /// Long text: worth a call, and the look at what the processor can do.
    #[inline(never)]
    fn long(text: &[u8], from: usize) -> usize {
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            unsafe { long_avx2(text, from) }
        } else {
            long_sse2(text, from)
        }
    }

    pub(super) fn long_sse2(text: &[u8], from: usize) -> usize {
        let mut at = from;
        while text.len().saturating_sub(at) >= 16 {
            // SAFETY: SSE2 is in the x86-64 baseline, and 16 bytes are left at `at`.
            let stops = unsafe { stops16(text.as_ptr().add(at)) };
            if stops != 0 {
                return at + stops.trailing_zeros() as usize;
            }
            at += 16;
        }
        super::swar::plain_end(text, at)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn long_avx2(text: &[u8], from: usize) -> usize {
        let mut at = from;
        while text.len().saturating_sub(at) >= 32 {
            // SAFETY: 32 bytes are left at `at`.
            let bytes = unsafe { _mm256_loadu_si256(text.as_ptr().add(at).cast()) };
            let quote = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'"' as i8));
            let backslash = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\\' as i8));
            // Unsigned "at most 0x1f": the smaller of the two is the byte itself.
            let below = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x1f)), bytes);
            let stops =
                _mm256_movemask_epi8(_mm256_or_si256(below, _mm256_or_si256(quote, backslash)))
                    as u32;
            if stops != 0 {
                return at + stops.trailing_zeros() as usize;
            }
            at += 32;
        }
        super::swar::plain_end(text, at)
    }

    /// One bit for each of the 16 bytes at `from` that stops a stretch.
    ///
    /// # Safety
    /// 16 bytes must be readable at `from`.
    #[inline(always)]
    unsafe fn stops16(from: *const u8) -> u32 {
        // SAFETY: the caller vouches for the load; SSE2 is in the x86-64 baseline.
        unsafe {
            let bytes = _mm_loadu_si128(from.cast());
            let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
            let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
            let below = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
            _mm_movemask_epi8(_mm_or_si128(below, _mm_or_si128(quote, backslash))) as u32
        }
    }
}

/// What is compared at once.
pub(super) const BLOCK: usize = 32;
pub(super) type Block = [u8; BLOCK];

/// Blocks of 32 bytes, for processors with AVX2. Of the bits of a result, the lowest stands for the first byte.
#[cfg(target_arch = "x86_64")]
pub(super) mod wide {
    use std::arch::x86_64::*;

    use super::Block;

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(block: &Block) -> __m256i {
        // SAFETY: a block has the 32 bytes that are read.
        unsafe { _mm256_loadu_si256(block.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn bits(bytes: __m256i) -> u32 {
        _mm256_movemask_epi8(bytes) as u32
    }

    /// Whether two blocks are the same in the bytes whose bits are set.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::json) fn same(one: &Block, other: &Block, bytes: u32) -> bool {
        !bits(_mm256_cmpeq_epi8(load(one), load(other))) & bytes == 0
    }

    /// The bytes that stop a stretch of text.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::json) fn stops(block: &Block) -> u32 {
        let bytes = load(block);
        let quote = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'"' as i8));
        let backslash = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\\' as i8));
        // Unsigned "at most 0x1f": the smaller of the two is the byte itself.
        let below = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, _mm256_set1_epi8(0x1f)), bytes);
        bits(_mm256_or_si256(below, _mm256_or_si256(quote, backslash)))
    }

    /// The bytes that are no ASCII.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::json) fn high(block: &Block) -> u32 {
        bits(load(block))
    }

    /// The bytes that are decimal digits.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(in crate::json) fn digits(block: &Block) -> u32 {
        let values = _mm256_sub_epi8(load(block), _mm256_set1_epi8(b'0' as i8));
        bits(_mm256_cmpeq_epi8(
            _mm256_min_epu8(values, _mm256_set1_epi8(9)),
            values,
        ))
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::*;

    /// NEON is in the aarch64 baseline.
    pub(super) fn plain_end(text: &[u8], from: usize) -> usize {
        let mut at = from;
        while text.len().saturating_sub(at) >= 16 {
            // SAFETY: NEON is in the aarch64 baseline, and 16 bytes are left at `at`.
            let stops = unsafe {
                let bytes = vld1q_u8(text.as_ptr().add(at));
                let quote = vceqq_u8(bytes, vdupq_n_u8(b'"'));
                let backslash = vceqq_u8(bytes, vdupq_n_u8(b'\\'));
                let below = vcltq_u8(bytes, vdupq_n_u8(0x20));
                let stops = vorrq_u8(below, vorrq_u8(quote, backslash));
                // NEON has no movemask: narrowing by 4 bits leaves one nibble for each byte.
                let nibbles = vshrn_n_u16::<4>(vreinterpretq_u16_u8(stops));
                vget_lane_u64::<0>(vreinterpret_u64_u8(nibbles))
            };
            if stops != 0 {
                return at + stops.trailing_zeros() as usize / 4;
            }
            at += 16;
        }
        super::swar::plain_end(text, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::testing::XorShift;

    fn plain(text: &[u8], from: usize) -> usize {
        (from..text.len())
            .find(|&at| matches!(text[at], b'"' | b'\\' | 0..=0x1f))
            .unwrap_or(text.len())
    }

    #[test]
    fn digits_end_where_they_end() {
        let mut random = XorShift::new(99);
        for _ in 0..20_000 {
            let len = random.below(40);
            let text: Vec<u8> = (0..len)
                .map(|_| match random.below(12) {
                    0 => random.next() as u8,
                    1 => b"/:.e-,}\xff"[random.below(8)],
                    _ => b'0' + random.below(10) as u8,
                })
                .collect();
            for from in 0..=len {
                let want = (from..len)
                    .find(|&at| !text[at].is_ascii_digit())
                    .unwrap_or(len);
                assert_eq!(
                    digits_end(&text, from),
                    want,
                    "{} from {from}",
                    text.escape_ascii()
                );
            }
        }
    }

    #[test]
    fn every_way_finds_the_same_byte() {
        let mut random = XorShift::new(0x5eed);
        for round in 0..4000 {
            let len = random.below(200);
            // Bytes around the borders, with the stops themselves rare enough for long stretches.
            let text: Vec<u8> = (0..len)
                .map(|_| match random.below(60) {
                    0 => b'"',
                    1 => b'\\',
                    2 => 0x1f,
                    3 => 0,
                    _ => [0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f, 0x80, 0xa2, 0xdc, 0xff]
                        [random.below(10)],
                })
                .collect();
            for from in 0..=len {
                let want = plain(&text, from);
                assert_eq!(plain_end(&text, from), want, "round {round} from {from}");
                assert_eq!(
                    swar::plain_end(&text, from),
                    want,
                    "swar, round {round} from {from}"
                );
                #[cfg(target_arch = "x86_64")]
                {
                    assert_eq!(
                        x86::long_sse2(&text, from),
                        want,
                        "sse2, round {round} from {from}"
                    );
                    if std::is_x86_feature_detected!("avx2") {
                        // SAFETY: the processor has AVX2.
                        assert_eq!(
                            unsafe { x86::long_avx2(&text, from) },
                            want,
                            "avx2, round {round} from {from}"
                        );
                    }
                }
            }
        }
    }
}
