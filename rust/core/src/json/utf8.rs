//! Whether bytes are UTF-8.

/// As `simdutf8` tells it, and faster where there is AVX-512, for which that has nothing.
pub(super) fn is_utf8(bytes: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() >= 64 && std::is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has AVX-512BW.
        return unsafe { x86::is_utf8(bytes) };
    }
    simdutf8::basic::from_utf8(bytes).is_ok()
}

/// The algorithm of Keiser and Lemire ("Validating UTF-8 in less than one instruction per byte"), 64 bytes at a time.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    // What may be wrong with two bytes in a row.
    const TOO_SHORT: i8 = 1;
    const TOO_LONG: i8 = 1 << 1;
    const OVERLONG_3: i8 = 1 << 2;
    const TOO_LARGE: i8 = 1 << 3;
    const SURROGATE: i8 = 1 << 4;
    const OVERLONG_2: i8 = 1 << 5;
    const TOO_LARGE_1000: i8 = 1 << 6;
    const OVERLONG_4: i8 = 1 << 6;
    /// Right only as the third or fourth byte of a character.
    const TWO_CONTINUATIONS: i8 = -1 << 7;
    /// What the low half of the first byte tells nothing of.
    const ANY: i8 = TOO_SHORT | TOO_LONG | TWO_CONTINUATIONS;

    /// By the high half of the first byte.
    const FIRST_HIGH: [i8; 16] = {
        let mut table = [TOO_LONG; 16];
        let mut at = 8;
        while at < 12 {
            table[at] = TWO_CONTINUATIONS;
            at += 1;
        }
        table[12] = TOO_SHORT | OVERLONG_2;
        table[13] = TOO_SHORT;
        table[14] = TOO_SHORT | OVERLONG_3 | SURROGATE;
        table[15] = TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4;
        table
    };
    /// By the low half of the first byte.
    const FIRST_LOW: [i8; 16] = {
        let mut table = [ANY | TOO_LARGE | TOO_LARGE_1000; 16];
        table[0] = ANY | OVERLONG_3 | OVERLONG_2 | OVERLONG_4;
        table[1] = ANY | OVERLONG_2;
        table[2] = ANY;
        table[3] = ANY;
        table[4] = ANY | TOO_LARGE;
        table[13] |= SURROGATE;
        table
    };
    /// By the high half of the second byte.
    const SECOND_HIGH: [i8; 16] = {
        const FOLLOWS: i8 = TOO_LONG | OVERLONG_2 | TWO_CONTINUATIONS;
        let mut table = [TOO_SHORT; 16];
        table[8] = FOLLOWS | OVERLONG_3 | TOO_LARGE_1000 | OVERLONG_4;
        table[9] = FOLLOWS | OVERLONG_3 | TOO_LARGE;
        table[10] = FOLLOWS | SURROGATE | TOO_LARGE;
        table[11] = FOLLOWS | SURROGATE | TOO_LARGE;
        table
    };

    #[inline]
    #[target_feature(enable = "avx512bw")]
    fn look_up(table: &[i8; 16], halves: __m512i) -> __m512i {
        // SAFETY: the table has the 16 bytes that are read.
        let table = unsafe { _mm_loadu_si128(table.as_ptr().cast()) };
        _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), halves)
    }

    #[inline]
    #[target_feature(enable = "avx512bw")]
    fn high_halves(bytes: __m512i) -> __m512i {
        _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi8(15))
    }

    /// The 64 bytes from `back` before `at` on, and zeros for those that are not there.
    #[inline]
    #[target_feature(enable = "avx512bw")]
    fn load(bytes: &[u8], at: usize, back: usize) -> __m512i {
        let left = (bytes.len() - at + back).min(64);
        let mut here = u64::MAX >> (64 - left);
        if at == 0 {
            here &= u64::MAX << back;
        }
        // SAFETY: reads no byte but those that `here` says are there.
        unsafe {
            let start = bytes.as_ptr().wrapping_add(at).wrapping_sub(back);
            _mm512_maskz_loadu_epi8(here, start.cast())
        }
    }

    /// Of at least 3 bytes.
    #[target_feature(enable = "avx512bw")]
    pub(super) fn is_utf8(bytes: &[u8]) -> bool {
        let mut wrong = _mm512_setzero_si512();
        let mut after_ascii = true;
        let mut at = 0;
        while at < bytes.len() {
            let second = load(bytes, at, 0);
            let is_ascii = _mm512_movepi8_mask(second) == 0;
            if !(is_ascii && after_ascii) {
                let first = load(bytes, at, 1);
                let first_low = _mm512_and_si512(first, _mm512_set1_epi8(15));
                let pair = _mm512_and_si512(
                    _mm512_and_si512(
                        look_up(&FIRST_HIGH, high_halves(first)),
                        look_up(&FIRST_LOW, first_low),
                    ),
                    look_up(&SECOND_HIGH, high_halves(second)),
                );
                // The third and fourth bytes of characters, and no others, continue what is a continuation: what stands
                // two bytes before is at least 0xe0, or three bytes before at least 0xf0, and so 0x80 is left of it.
                let third = _mm512_subs_epu8(load(bytes, at, 2), _mm512_set1_epi8(0x60));
                let fourth = _mm512_subs_epu8(load(bytes, at, 3), _mm512_set1_epi8(0x70));
                let continues = _mm512_and_si512(
                    _mm512_or_si512(third, fourth),
                    _mm512_set1_epi8(TWO_CONTINUATIONS),
                );
                wrong = _mm512_or_si512(wrong, _mm512_xor_si512(pair, continues));
            }
            after_ascii = is_ascii;
            at += 64;
        }
        // The zeros behind the last bytes tell whether they end with a character, if there are any.
        let is_cut = match *bytes {
            [.., third, second, first] => third >= 0xf0 || second >= 0xe0 || first >= 0xc0,
            _ => true,
        };
        !is_cut && _mm512_test_epi8_mask(wrong, wrong) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::testing::XorShift;

    #[test]
    fn what_is_utf8_is_told_as_the_standard_library_tells_it() {
        let mut random = XorShift::new(0x8f);
        let odd = [
            0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xed, 0xef,
            0xf0, 0xf4, 0xf5, 0xff,
        ];
        let characters = [
            'a', '\u{80}', '\u{7ff}', '\u{800}', '\u{d7ff}', '\u{e000}', '\u{ffff}',
        ]
        .into_iter()
        .chain(['\u{10000}', '\u{10ffff}']);
        let characters: Vec<char> = characters.collect();
        let mut good = 0;
        for _ in 0..60_000 {
            let often = [1, 3, 100][random.below(3)];
            let mut text = String::new();
            for _ in 0..random.below(150) {
                text.push(match random.below(often) {
                    0 => characters[random.below(characters.len())],
                    _ => ' ',
                });
            }
            text.push_str(&" ".repeat(64usize.saturating_sub(text.len())));
            let mut bytes = text.into_bytes();
            if random.below(3) > 0 {
                let at = random.below(bytes.len());
                bytes[at] = odd[random.below(odd.len())];
            }
            if random.below(3) == 0 {
                bytes.truncate(64.max(bytes.len() - random.below(4).min(bytes.len())));
            }
            let want = std::str::from_utf8(&bytes).is_ok();
            good += usize::from(want);
            assert_eq!(is_utf8(&bytes), want, "{}", bytes.escape_ascii());
        }
        assert!((10_000..50_000).contains(&good), "{good}");
    }

    /// All pairs and triples of odd bytes, at the borders of blocks.
    #[test]
    fn every_two_bytes_are_judged_right() {
        for first in 0x70..=0xff {
            for second in 0x70..=0xff {
                for tail in [&b""[..], b"a", b"\x80", b"\x80\x80", b"\xbf\x80a"] {
                    for before in [62, 63, 64, 100, 126] {
                        let mut bytes = vec![b' '; before];
                        bytes.extend_from_slice(&[first, second]);
                        bytes.extend_from_slice(tail);
                        let want = std::str::from_utf8(&bytes).is_ok();
                        assert_eq!(is_utf8(&bytes), want, "{}", bytes.escape_ascii());
                    }
                }
            }
        }
    }
}
