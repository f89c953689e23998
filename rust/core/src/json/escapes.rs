//! Strings with many escapes: passes over them, and decodes them, many bytes at a time.
//!
//! Both take only escapes of two bytes, nearly all of them, and leave the others to the caller. The `unsafe` here is of
//! vector loads and stores, each inside bounds that were checked, and of calls for processors that were asked.

use std::mem::MaybeUninit;

use super::scan::plain_end;

/// Offset of the first byte at or after `from`, which is inside a string, that is neither plain nor part of an escape of
/// two bytes; the length of the text if there is none. And whether there were such escapes.
#[inline]
pub(super) fn skip(text: &[u8], from: usize) -> (usize, bool) {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { x86::skip_avx2(text, from) };
        }
    }
    skip_plain(text, from, false)
}

/// The plain way, for the end of a text too; `found`: there were escapes before.
fn skip_plain(text: &[u8], from: usize, mut found: bool) -> (usize, bool) {
    let mut at = plain_end(text, from);
    while text.get(at) == Some(&b'\\') && is_short(text, at + 1) {
        found = true;
        at = plain_end(text, at + 2);
    }
    (at, found)
}

/// Whether this, after a backslash, is the other byte of an escape of two.
#[inline(always)]
pub(super) fn is_short(text: &[u8], at: usize) -> bool {
    matches!(
        text.get(at),
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
    )
}

/// What the byte after the backslash of an escape of two stands for.
#[inline]
pub(super) fn meaning(byte: u8) -> u8 {
    match byte {
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        other => other,
    }
}

/// Writes what the inside of a string stands for to `out`, up to its end or a backslash: how much was read, and how much
/// written. `out` has room for all of the string.
#[inline]
pub(super) fn decode(raw: &[u8], out: &mut [MaybeUninit<u8>]) -> (usize, usize) {
    assert!(out.len() >= raw.len());
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            return unsafe { x86::decode_avx2(raw, out) };
        }
    }
    decode_plain(raw, out, 0, 0)
}

/// The plain way, from `at` on, to `to` on: up to the next backslash.
fn decode_plain(
    raw: &[u8],
    out: &mut [MaybeUninit<u8>],
    mut at: usize,
    mut to: usize,
) -> (usize, usize) {
    // Mostly there is a backslash soon: eight bytes at a time, and what is copied beyond it is written again.
    let near = at + 16;
    while at < near
        && let Some(run) = raw[at..].first_chunk::<8>()
    {
        let place = out[to..to + 8].as_mut_ptr();
        // SAFETY: the place has the 8 bytes that are written.
        unsafe { place.cast::<[u8; 8]>().write_unaligned(*run) };
        let plain = plain_bytes(*run);
        at += plain;
        to += plain;
        if plain < run.len() {
            return (at, to);
        }
    }
    let end = backslash(raw, at);
    let run = std::ptr::from_ref(&raw[at..end]) as *const [MaybeUninit<u8>];
    // SAFETY: what is initialised may be read as what may be.
    out[to..to + end - at].copy_from_slice(unsafe { &*run });
    (end, to + end - at)
}

/// How many of eight bytes there are before a backslash.
#[inline(always)]
fn plain_bytes(run: [u8; 8]) -> usize {
    let other = u64::from_le_bytes(run) ^ 0x5c5c_5c5c_5c5c_5c5c;
    let zeros = other.wrapping_sub(0x0101_0101_0101_0101) & !other;
    (zeros & 0x8080_8080_8080_8080).trailing_zeros() as usize / 8
}

/// Where the next backslash is, or the end.
#[inline]
pub(super) fn backslash(bytes: &[u8], at: usize) -> usize {
    // Of what ends a plain stretch only backslashes are left in a string, and control characters of the lax grammar.
    let mut end = plain_end(bytes, at);
    while bytes.get(end).is_some_and(|byte| *byte != b'\\') {
        end = plain_end(bytes, end + 1);
    }
    end
}

/// Of the backslashes among 64 bytes, of which the first is not escaped: those that begin an escape, and the bytes that
/// are escaped.
#[inline(always)]
fn escapes(backslashes: u64) -> (u64, u64) {
    // In a run of backslashes every other one begins an escape. Subtracting carries through a run up to its end, and
    // tells there whether it began at an even or an odd place.
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let both = ((backslashes << 1) | ODD).wrapping_sub(backslashes) ^ ODD;
    (both & backslashes, both ^ backslashes)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::*;

    /// As [`skip_plain`], 64 bytes at a time.
    #[target_feature(enable = "avx2")]
    pub(super) fn skip_avx2(text: &[u8], from: usize) -> (usize, bool) {
        let (mut at, mut found) = (from, false);
        while let Some(block) = text.get(at..).and_then(|rest| rest.first_chunk::<64>()) {
            let (ends, backslashes) = ends(block);
            if backslashes == 0 {
                if ends != 0 {
                    return (at + ends.trailing_zeros() as usize, found);
                }
                at += 64;
                continue;
            }
            let (starts, escaped) = escapes(backslashes);
            let stops = ends & !escaped | (escaped & !shorts(block)) >> 1;
            if stops != 0 {
                let stop = stops.trailing_zeros();
                found |= starts & ((1 << stop) - 1) != 0;
                return (at + stop as usize, found);
            }
            // If the last byte begins an escape, so does the next block. A block always begins so.
            found |= starts << 1 != 0;
            at += 64 - (starts >> 63) as usize;
        }
        skip_plain(text, at, found)
    }

    // No closures below: in what the compiler makes of them it does not count on the processor's features.

    #[inline]
    #[target_feature(enable = "avx2")]
    fn halves(block: &[u8; 64]) -> (__m256i, __m256i) {
        let start = block.as_ptr();
        // SAFETY: a block has the 64 bytes that are read.
        unsafe {
            (
                _mm256_loadu_si256(start.cast()),
                _mm256_loadu_si256(start.add(32).cast()),
            )
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn bits(low: __m256i, high: __m256i) -> u64 {
        let (low, high) = (_mm256_movemask_epi8(low), _mm256_movemask_epi8(high));
        u64::from(high as u32) << 32 | u64::from(low as u32)
    }

    /// The quotes and control characters, and the backslashes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn ends(block: &[u8; 64]) -> (u64, u64) {
        let (low, high) = halves(block);
        let backslash = _mm256_set1_epi8(b'\\' as i8);
        let backslashes = bits(
            _mm256_cmpeq_epi8(low, backslash),
            _mm256_cmpeq_epi8(high, backslash),
        );
        (bits(ends_of_half(low), ends_of_half(high)), backslashes)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn ends_of_half(half: __m256i) -> __m256i {
        let quote = _mm256_cmpeq_epi8(half, _mm256_set1_epi8(b'"' as i8));
        // Unsigned "at most 0x1f": the smaller of the two is the byte itself.
        let below = _mm256_cmpeq_epi8(_mm256_min_epu8(half, _mm256_set1_epi8(0x1f)), half);
        _mm256_or_si256(quote, below)
    }

    /// For each high half of a byte, the bit of the row that it stands for, and for each low half the rows in which such
    /// a byte makes an escape of two: `"` and `/` in row 1, `\` in 2, `b`, `f` and `n` in 4, `r` and `t` in 8.
    const ROWS: [i8; 16] = [0, 0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    const COLUMNS: [i8; 16] = [0, 0, 1 | 4 | 8, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4, 1];

    #[inline]
    fn table(table: &[i8; 16]) -> __m128i {
        // SAFETY: SSE2 is in the x86-64 baseline, and the table has the 16 bytes that are read.
        unsafe { _mm_loadu_si128(table.as_ptr().cast()) }
    }

    /// The bytes that make an escape of two.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn shorts(block: &[u8; 64]) -> u64 {
        let (low, high) = halves(block);
        !bits(others_of_half(low), others_of_half(high))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn others_of_half(half: __m256i) -> __m256i {
        let digit = _mm256_set1_epi8(15);
        let row = _mm256_and_si256(_mm256_srli_epi16::<4>(half), digit);
        let row = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table(&ROWS)), row);
        let column = _mm256_and_si256(half, digit);
        let column = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table(&COLUMNS)), column);
        _mm256_cmpeq_epi8(_mm256_and_si256(row, column), _mm256_setzero_si256())
    }

    /// Up to an escape of more than two bytes, or to one near the end.
    #[target_feature(enable = "avx2")]
    pub(super) fn decode_avx2(raw: &[u8], out: &mut [MaybeUninit<u8>]) -> (usize, usize) {
        let (mut at, mut to) = (0, 0);
        while let Some(block) = raw[at..].first_chunk::<32>() {
            // SAFETY: a block has the 32 bytes that are read.
            let bytes = unsafe { _mm256_loadu_si256(block.as_ptr().cast()) };
            let place = out[to..to + 32].as_mut_ptr();
            // What is copied beyond a backslash is written again.
            // SAFETY: the place has the 32 bytes that are written.
            unsafe { _mm256_storeu_si256(place.cast(), bytes) };
            let backslash = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(b'\\' as i8));
            let plain = (_mm256_movemask_epi8(backslash) as u32).trailing_zeros() as usize;
            at += plain;
            to += plain;
            if plain < 32 {
                if !is_short(raw, at + 1) {
                    return (at, to);
                }
                out[to].write(meaning(raw[at + 1]));
                at += 2;
                to += 1;
            }
        }
        decode_plain(raw, out, at, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::testing::XorShift;

    /// Texts with escapes of all kinds, near each other and far apart; `wrong`: and with what is none.
    fn text(random: &mut XorShift, wrong: bool) -> Vec<u8> {
        let mut text = Vec::new();
        let often = [2, 8, 40, 300][random.below(4)];
        for _ in 0..random.below(300) {
            match random.below(often) {
                0 => {
                    let escape = random.below(if wrong { 40 } else { 16 });
                    text.extend_from_slice(match escape {
                        0..=7 => [
                            br#"\""#, br"\\", br"\/", br"\b", br"\f", br"\n", br"\r", br"\t",
                        ][escape],
                        8..=10 => br"\\",
                        11 => br"\u00e9",
                        12 => br"\ud83d\ude00",
                        13 => br"\ud83d",
                        14 => "é😀".as_bytes(),
                        15 => br"u\\u\\\\u",
                        16 => br"\",
                        17 => br"\x",
                        18 => b"\"",
                        19 => b"\x1f",
                        20 => b"\0",
                        21 => b"\\\n",
                        22 => b"\\\xff",
                        23 => br"\u12",
                        _ => br"\\\\\\",
                    });
                }
                1 => text.extend_from_slice(b"bfnrtu/"),
                _ => text.push(b' ' + random.below(2) as u8),
            }
        }
        text
    }

    #[test]
    fn every_way_passes_over_the_same() {
        let mut random = XorShift::new(0xe5c);
        for _ in 0..3_000 {
            let text = text(&mut random, true);
            for from in [0, 1, random.below(text.len() + 1)] {
                let from = from.min(text.len());
                let want = skip_plain(&text, from, false);
                let shown = text.escape_ascii();
                assert_eq!(skip(&text, from), want, "{shown} from {from}");
                #[cfg(target_arch = "x86_64")]
                if std::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has AVX2.
                    let found = unsafe { x86::skip_avx2(&text, from) };
                    assert_eq!(found, want, "avx2, {shown} from {from}");
                }
            }
        }
    }

    type Decode = fn(&[u8], &mut [MaybeUninit<u8>]) -> (usize, usize);

    /// Decodes it step by step; of a longer escape only the backslash is left out.
    fn decoded(raw: &[u8], decode: Decode) -> Vec<u8> {
        let mut out = vec![MaybeUninit::new(b'!'); raw.len()];
        let (mut at, mut to) = (0, 0);
        while at < raw.len() {
            let (read, written) = decode(&raw[at..], &mut out[to..]);
            at += read;
            to += written;
            if at == raw.len() {
                break;
            }
            assert_eq!(raw[at], b'\\');
            at += 1;
            if is_short(raw, at) {
                out[to].write(meaning(raw[at]));
                at += 1;
                to += 1;
            }
        }
        // SAFETY: all of them were written above.
        out[..to]
            .iter()
            .map(|byte| unsafe { byte.assume_init() })
            .collect()
    }

    #[test]
    fn every_way_decodes_to_the_same() {
        let mut random = XorShift::new(0xdec);
        for _ in 0..3_000 {
            let text = text(&mut random, false);
            let want = decoded(&text, |raw, out| decode_plain(raw, out, 0, 0));
            let shown = text.escape_ascii();
            assert_eq!(decoded(&text, decode), want, "{shown}");
            #[cfg(target_arch = "x86_64")]
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                let avx2: Decode = |raw, out| unsafe { x86::decode_avx2(raw, out) };
                assert_eq!(decoded(&text, avx2), want, "avx2, {shown}");
            }
        }
    }
}
