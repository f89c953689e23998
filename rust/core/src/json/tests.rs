//! The decoder against its rules.

use super::testing::XorShift;
use super::*;

fn refused(text: &[u8]) -> (usize, Reason) {
    match Tape::new().parse(text) {
        Ok(_) => panic!("accepted: {}", text.escape_ascii()),
        Err(error) => (error.offset, error.reason),
    }
}

/// The text as it would be printed again, from the views alone.
fn printed(value: Value<'_>) -> String {
    match value.kind() {
        Kind::Null => "null".into(),
        Kind::Bool => value.as_bool().unwrap().to_string(),
        Kind::Number => value.number().unwrap().into(),
        Kind::String => format!("\"{}\"", value.as_str().unwrap().raw()),
        Kind::Array => {
            let items: Vec<_> = value.items().map(printed).collect();
            assert_eq!(items.len(), value.len());
            format!("[{}]", items.join(","))
        }
        Kind::Object => {
            let entries: Vec<_> = value
                .entries()
                .map(|(key, value)| format!("\"{}\":{}", key.raw(), printed(value)))
                .collect();
            assert_eq!(entries.len(), value.len());
            format!("{{{}}}", entries.join(","))
        }
    }
}

const SAMPLES: [&str; 11] = [
    r#"{}"#,
    r#"[]"#,
    r#"{"type":"message_update","usage":{"input":100,"cost":{"total":0}},"n":[1,-2.5e+3,[],{}]}"#,
    r#"[[[[]]],{"a":{"b":{"c":[null,true,false]}}},"end"]"#,
    r#"{"a":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00","b":"plain äöü 😀"}"#,
    r#"["","\\","\\\\","\\\"",""]"#,
    r#"-0"#,
    r#"12345678901234567890123456789012345678901234567890.5E-7"#,
    r#"{"a":1,"a":2,"b":{"a":3},"a":[4]}"#,
    r#"["a string of more than thirty-two bytes, so that the long scan has work to do: 0123456789abcdef"]"#,
    r#"{"":{"":[""]}}"#,
];

#[test]
fn views_show_what_the_text_says() {
    let mut tape = Tape::new();
    for sample in SAMPLES {
        assert_eq!(
            printed(tape.parse(sample.as_bytes()).unwrap().root()),
            sample
        );
        let spaced: String = sample.replace(':', " :\t").replace('{', "\r\n{ ");
        if !sample.contains("long scan") {
            assert_eq!(
                printed(tape.parse(spaced.as_bytes()).unwrap().root()),
                sample
            );
        }
    }
}

#[test]
fn every_truncation_is_refused_as_cut() {
    for sample in SAMPLES
        .iter()
        .filter(|sample| !sample.ends_with(|c: char| c.is_ascii_digit()))
    {
        for cut in 0..sample.len() {
            let (offset, reason) = refused(&sample.as_bytes()[..cut]);
            let want = if sample.is_char_boundary(cut) {
                Reason::UnexpectedEnd
            } else {
                Reason::InvalidUtf8
            };
            assert_eq!(reason, want, "{}", &sample.as_bytes()[..cut].escape_ascii());
            assert!(offset <= cut);
        }
    }
}

#[test]
fn random_damage_never_panics() {
    let mut random = XorShift::new(7);
    let mut tape = Tape::new();
    for _ in 0..60_000 {
        let mut text = SAMPLES[random.below(SAMPLES.len())].as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(text.len());
            text[at] = match random.below(3) {
                0 => b"{}[]:,\"\\0e.-tn \n"[random.below(16)],
                1 => random.next() as u8,
                _ => text[random.below(text.len())],
            };
        }
        if let Ok(doc) = tape.parse(&text) {
            printed(doc.root());
        }
        let _ = tape.parse_lax(&text);
    }
}

#[test]
fn numbers() {
    let mut tape = Tape::new();
    for good in [
        "0",
        "-0",
        "7",
        "10",
        "0.0",
        "-0.5",
        "1e5",
        "1E5",
        "1e+5",
        "1e-05",
        "0e0",
        "123.456e789",
    ] {
        assert_eq!(
            tape.parse(good.as_bytes()).unwrap().root().number(),
            Some(good)
        );
    }
    for bad in [
        "00", "01", "-01", "-a", "0.a", "1.e1", "1ea", "1e+a", "--1", "-.5",
    ] {
        assert_eq!(refused(bad.as_bytes()).1, Reason::InvalidNumber, "{bad}");
    }
    for cut in ["-", "0.", "1e", "1E+"] {
        assert_eq!(
            refused(cut.as_bytes()),
            (cut.len(), Reason::UnexpectedEnd),
            "{cut}"
        );
    }
    for bad in ["+1", ".5", "NaN", "Infinity", "-Infinity", "0x1", "1_000"] {
        refused(bad.as_bytes());
    }
}

#[test]
fn numbers_as_python_reads_them() {
    let mut tape = Tape::new();
    let mut of = |text: &str| {
        let doc = tape.parse(text.as_bytes()).unwrap();
        let value = doc.root();
        (
            value.is_integer(),
            value.as_i64(),
            value.as_u64(),
            value.as_f64(),
        )
    };
    assert_eq!(of("42"), (true, Some(42), Some(42), Some(42.0)));
    assert_eq!(of("-1"), (true, Some(-1), None, Some(-1.0)));
    assert_eq!(of("-0"), (true, Some(0), Some(0), Some(0.0)));
    assert!(of("-0.0").3.unwrap().is_sign_negative());
    assert_eq!(of("1.0"), (false, None, None, Some(1.0)));
    assert_eq!(of("1e2"), (false, None, None, Some(100.0)));
    assert_eq!(
        of("9223372036854775808"),
        (true, None, Some(1 << 63), Some(9223372036854775808.0))
    );
    assert_eq!(of("-9223372036854775808").1, Some(i64::MIN));
    assert_eq!(
        of("18446744073709551616"),
        (true, None, None, Some(18446744073709551616.0))
    );
    assert_eq!(of("1e400").3, Some(f64::INFINITY));
    assert_eq!(of("-1e400").3, Some(f64::NEG_INFINITY));
    assert_eq!(of("1e-400").3, Some(0.0));
    assert_eq!(
        of("2.2250738585072011e-308").3,
        Some(2.225073858507201e-308)
    );
    assert_eq!(of("9007199254740993").3, Some(9007199254740992.0));
    assert_eq!(
        of(&"9".repeat(5000)),
        (true, None, None, Some(f64::INFINITY))
    );
}

#[test]
fn literals() {
    let mut tape = Tape::new();
    assert!(tape.parse(b" null ").unwrap().root().is_null());
    assert_eq!(tape.parse(b"true").unwrap().root().as_bool(), Some(true));
    assert_eq!(
        tape.parse(b"\t\r\nfalse").unwrap().root().as_bool(),
        Some(false)
    );
    assert_eq!(refused(b"nul"), (3, Reason::UnexpectedEnd));
    assert_eq!(refused(b"nulL"), (3, Reason::UnexpectedCharacter));
    assert_eq!(refused(b"nullx"), (4, Reason::TrailingData));
    assert_eq!(refused(b"[truefalse]"), (5, Reason::UnexpectedCharacter));
    assert_eq!(refused(b""), (0, Reason::UnexpectedEnd));
    assert_eq!(refused(b"  "), (2, Reason::UnexpectedEnd));
    // Other blanks are none of JSON's.
    for bad in ["\u{a0}1", "\u{feff}1", "\x0c1", "\x0b1", "1\0"] {
        refused(bad.as_bytes());
    }
}

#[test]
fn structure() {
    for (bad, offset) in [
        ("{\"a\"}", 4),
        ("{\"a\":}", 5),
        ("{\"a\":1,}", 7),
        ("{a:1}", 1),
        ("{1:1}", 1),
        ("{,}", 1),
        ("[,]", 1),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("[1:2]", 2),
        ("{\"a\":1]", 6),
        ("[1}", 2),
        ("{\"a\" \"b\"}", 5),
        ("{\"a\":1 \"b\":2}", 7),
        ("}", 0),
        ("\\", 0),
    ] {
        assert_eq!(
            refused(bad.as_bytes()),
            (offset, Reason::UnexpectedCharacter),
            "{bad}"
        );
    }
    assert_eq!(refused(b"[] []"), (3, Reason::TrailingData));
    assert_eq!(refused(b"{}}"), (2, Reason::TrailingData));
}

#[test]
fn strings() {
    for byte in 0..0x20 {
        assert_eq!(
            refused(&[b'"', b'a', byte, b'"']),
            (2, Reason::ControlCharacter)
        );
    }
    assert!(Tape::new().parse(b"\"\x7f\"").is_ok());
    for bad in [
        "\"\\a\"",
        "\"\\'\"",
        "\"\\U0041\"",
        "\"\\x41\"",
        "\"\\\n\"",
        "\"\\u 041\"",
        "\"\\u+041\"",
        "\"\\u00g0\"",
    ] {
        assert_eq!(refused(bad.as_bytes()).1, Reason::InvalidEscape, "{bad}");
    }
    assert_eq!(refused(b"\"\\u004\""), (6, Reason::InvalidEscape));
    assert_eq!(refused(b"\"\\\""), (3, Reason::UnexpectedEnd));
}

#[test]
fn utf8_to_the_letter() {
    for good in [
        "\u{80}",
        "\u{7ff}",
        "\u{800}",
        "\u{d7ff}",
        "\u{e000}",
        "\u{ffff}",
        "\u{10000}",
        "\u{10ffff}",
        "\u{2028}",
    ] {
        assert!(Tape::new().parse(format!("\"{good}\"").as_bytes()).is_ok());
    }
    for bad in [
        &b"\x80"[..],
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xff",
        b"\xe2\x82",
    ] {
        let text = [b"\"ok", bad, b"\""].concat();
        assert_eq!(refused(&text), (3, Reason::InvalidUtf8));
        // Wherever it stands, and whatever else is wrong.
        let text = [b"\"ok\" \x01".as_slice(), bad].concat();
        assert_eq!(refused(&text), (6, Reason::InvalidUtf8));
        let long = [b"\"", [b'x'; 300].as_slice(), bad, b"\""].concat();
        assert_eq!(refused(&long), (301, Reason::InvalidUtf8));
    }
}

#[test]
fn escapes_decode() {
    let mut tape = Tape::new();
    let doc = tape
        .parse(br#"["\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83d\ude00z", "plain", "a\u0000b"]"#)
        .unwrap();
    let strings: Vec<Str> = doc
        .root()
        .items()
        .map(|value| value.as_str().unwrap())
        .collect();
    assert_eq!(strings[0].lossy(), "\"\\/\u{8}\u{c}\n\r\tAé€😀z");
    assert!(strings[0].has_escapes() && !strings[0].is_lossy() && !doc.has_lone_surrogate());
    assert!(strings[0].eq("\"\\/\u{8}\u{c}\n\r\tAé€😀z"));
    assert!(!strings[0].eq("\"\\/\u{8}\u{c}\n\r\tAé€😀"));
    assert!(!strings[0].eq("\"\\/\u{8}\u{c}\n\r\tAé€😀zz"));
    assert!(matches!(
        strings[1].lossy(),
        std::borrow::Cow::Borrowed("plain")
    ));
    assert_eq!(strings[2].lossy(), "a\0b");
}

#[test]
fn escapes_decode_wherever_they_are() {
    let escapes = [
        (r"\n", "\n"),
        (r"\\", "\\"),
        (r"\u00e9", "é"),
        (r"\u6f22", "漢"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d", "\u{fffd}"),
        (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
    ];
    let plain = "plain é 漢字 😀 text ".repeat(6);
    let mut room = String::new();
    for len in plain.char_indices().map(|(at, _)| at) {
        let before = &plain[..len];
        for (one, is) in escapes {
            for (other, also) in escapes {
                let text = format!("\"{before}{one}{before}{one}{other}-\"");
                let mut tape = Tape::new();
                let doc = tape.parse(text.as_bytes()).unwrap();
                let string = doc.root().as_str().unwrap();
                // Between `one` and `other` halves may meet; that is why it is compared with `wtf8`.
                let want = String::from_utf16_lossy(&utf16(&string.wtf8()));
                assert_eq!(string.lossy(), want, "{text}");
                assert_eq!(string.decode_in(&mut room), want);
                if !is.contains('\u{fffd}') && !also.contains('\u{fffd}') {
                    assert_eq!(want, format!("{before}{is}{before}{is}{also}-"));
                }
            }
        }
    }
}

/// The UTF-16 units of WTF-8.
fn utf16(wtf8: &[u8]) -> Vec<u16> {
    let mut units = Vec::new();
    let mut rest = wtf8;
    while let Some(first) = rest.first() {
        let len = match first {
            0..0x80 => 1,
            0x80..0xe0 => 2,
            0xe0..0xf0 => 3,
            _ => 4,
        };
        let (character, more) = rest.split_at(len);
        match std::str::from_utf8(character) {
            Ok(text) => units.extend(text.encode_utf16()),
            Err(_) => {
                let six = |at: usize| u16::from(character[at] & 0x3f);
                units.push(u16::from(first & 0x0f) << 12 | six(1) << 6 | six(2));
            }
        }
        rest = more;
    }
    units
}

#[test]
fn lone_surrogates() {
    /// raw, lossy, lead, trail, text of halves, lossy of halves
    type Case = (
        &'static str,
        &'static str,
        Option<u16>,
        Option<u16>,
        &'static str,
        bool,
    );
    let table: [Case; 12] = [
        (r"\ud83d", "\u{fffd}", None, Some(0xd83d), "", false),
        (r"\uDE00", "\u{fffd}", Some(0xde00), None, "", false),
        (r"a\ud83d", "a\u{fffd}", None, Some(0xd83d), "a", false),
        (r"\ude00b", "\u{fffd}b", Some(0xde00), None, "b", false),
        (
            r"\ude00\ud83d",
            "\u{fffd}\u{fffd}",
            Some(0xde00),
            Some(0xd83d),
            "",
            false,
        ),
        (
            r"\ude00x\ud83d",
            "\u{fffd}x\u{fffd}",
            Some(0xde00),
            Some(0xd83d),
            "x",
            false,
        ),
        (r"a\ud83db", "a\u{fffd}b", None, None, "a\u{fffd}b", true),
        (
            r"\ud83d\ud83d\ude00",
            "\u{fffd}😀",
            None,
            None,
            "\u{fffd}😀",
            true,
        ),
        (
            r"\ud83d\ude00\ude00",
            "😀\u{fffd}",
            None,
            None,
            "😀\u{fffd}",
            true,
        ),
        (r"\ud83d\u0041", "\u{fffd}A", None, None, "\u{fffd}A", true),
        (
            r"\ud83d\\ude00",
            "\u{fffd}\\ude00",
            None,
            None,
            "\u{fffd}\\ude00",
            true,
        ),
        (
            r"\ude00\ude00",
            "\u{fffd}\u{fffd}",
            Some(0xde00),
            None,
            "\u{fffd}",
            true,
        ),
    ];
    let mut tape = Tape::new();
    for (raw, lossy, lead, trail, text, lossy_halves) in table {
        let json = format!("{{\"{raw}\":1,\"x\":\"{raw}\"}}");
        let doc = tape.parse(json.as_bytes()).unwrap();
        assert!(doc.has_lone_surrogate(), "{raw}");
        let string = doc.root().get("x").unwrap().as_str().unwrap();
        assert!(string.is_lossy(), "{raw}");
        assert_eq!(string.lossy(), lossy, "{raw}");
        let halves = Halves {
            text: text.into(),
            lead,
            trail,
            lossy: lossy_halves,
        };
        assert_eq!(string.halves(), halves, "{raw}");
        assert!(
            doc.root().get(lossy).is_none(),
            "a half equals no character"
        );
    }
    let doc = tape.parse(br#"["\ud83d \ude00", "\u20ac\udfff"]"#).unwrap();
    let mut items = doc.root().items().map(|value| value.as_str().unwrap());
    assert_eq!(&*items.next().unwrap().wtf8(), b"\xed\xa0\xbd \xed\xb8\x80");
    assert_eq!(&*items.next().unwrap().wtf8(), b"\xe2\x82\xac\xed\xbf\xbf");
    let doc = tape.parse(br#""\ud83d\ude00 \uD7FF\ue000""#).unwrap();
    assert!(!doc.has_lone_surrogate() && !doc.root().as_str().unwrap().is_lossy());
    assert_eq!(&*doc.root().text().unwrap(), "😀 \u{d7ff}\u{e000}");
}

#[test]
fn depth() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |levels: usize| open.repeat(levels) + "1" + &close.repeat(levels);
        assert!(Tape::new().parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        let offset = MAX_DEPTH * open.len();
        assert_eq!(
            refused(nested(MAX_DEPTH + 1).as_bytes()),
            (offset, Reason::TooDeep)
        );
        assert_eq!(
            refused(open.repeat(1_000_000).as_bytes()),
            (offset, Reason::TooDeep)
        );
    }
    // Siblings do not add up.
    let wide = format!("[{}[]]", "[[]],".repeat(5000));
    assert_eq!(
        Tape::new().parse(wide.as_bytes()).unwrap().root().len(),
        5001
    );
}

#[test]
fn a_huge_text_does_not_keep_its_memory() {
    let mut tape = Tape::new();
    let huge = format!("[{}0]", "0,".repeat(3_000_000));
    assert_eq!(tape.parse(huge.as_bytes()).unwrap().root().len(), 3_000_001);
    assert!(tape.nodes.len() > tape::KEPT);
    assert!(tape.parse(b"[1]").is_ok());
    assert!(tape.nodes.capacity() <= tape::KEPT);
    assert_eq!(
        tape.parse(huge.as_bytes()).unwrap().root().items().count(),
        3_000_001
    );
}

#[test]
fn repeated_keys() {
    let mut tape = Tape::new();
    let doc = tape.parse(br#"{"a":1,"\u0061":2,"b":{"a":9},"a":[3],"\u00":0}"#);
    assert!(doc.is_err());
    let doc = tape
        .parse(br#"{"a":1,"\u0061":2,"b":{"a":9},"a":[3],"ab":0}"#)
        .unwrap();
    let root = doc.root();
    assert_eq!(root.get("a").unwrap().raw(), b"[3]");
    assert_eq!(root.first("a").unwrap().as_i64(), Some(1));
    assert_eq!(root.len(), 5);
    assert_eq!(root.path(&["b", "a"]).unwrap().as_i64(), Some(9));
    assert_eq!(root.path(&[]).unwrap().raw(), root.raw());
    assert!(root.path(&["a", "b"]).is_none() && root.get("c").is_none());
    let keys: Vec<_> = root
        .entries()
        .map(|(key, _)| key.lossy().into_owned())
        .collect();
    assert_eq!(keys, ["a", "a", "b", "a", "ab"]);
    let doc = tape.parse(br#"{"\u0061\ud83d\ude00":1}"#).unwrap();
    assert_eq!(doc.root().get("a😀").unwrap().as_i64(), Some(1));
}

#[test]
fn keys_of_any_length_are_told_apart_by_any_byte() {
    let mut tape = Tape::new();
    for len in 0..40 {
        let key: String = "abcdefghijklmnopqrstuvwxyzäöüABCDEFGHIJKLMNOP"
            .chars()
            .take(len)
            .collect();
        let text = format!("{{\"{key}\":1}}");
        let doc = tape.parse(text.as_bytes()).unwrap();
        assert_eq!(doc.root().get(&key).unwrap().as_i64(), Some(1));
        assert!(doc.root().get(&(key.clone() + "x")).is_none());
        for at in 0..len {
            let other: String = key
                .chars()
                .enumerate()
                .map(|(i, c)| if i == at { '!' } else { c })
                .collect();
            assert!(doc.root().get(&other).is_none(), "{key} {other}");
        }
    }
}

#[test]
fn views_of_the_wrong_kind_are_empty() {
    let mut tape = Tape::new();
    for text in ["1", "\"{\"", "true", "null", "[]", "{}"] {
        let doc = tape.parse(text.as_bytes()).unwrap();
        let root = doc.root();
        assert_eq!(
            (root.len(), root.items().count(), root.entries().count()),
            (0, 0, 0),
            "{text}"
        );
        assert!(root.is_empty() && root.get("").is_none());
        assert_eq!(root.as_str().is_some(), root.kind() == Kind::String);
        assert_eq!(root.as_bool().is_some(), root.kind() == Kind::Bool);
        assert_eq!(root.as_f64().is_some(), root.kind() == Kind::Number);
        assert_eq!(root.number().is_some(), root.kind() == Kind::Number);
    }
}

#[test]
fn lax_takes_what_salvage_needs() {
    let mut tape = Tape::new();
    let text = b"{\"a\":NaN,\"b\":[Infinity,-Infinity],\"c\":\"x\x00\n\x1b[0m\\n\"}";
    assert_eq!(refused(text), (5, Reason::UnexpectedCharacter));
    let doc = tape.parse_lax(text).unwrap();
    let root = doc.root();
    let nan = root.get("a").unwrap();
    assert_eq!(
        (nan.kind(), nan.number(), nan.is_integer()),
        (Kind::Number, Some("NaN"), false)
    );
    assert!(nan.as_f64().unwrap().is_nan() && nan.as_i64().is_none());
    let infinite: Vec<_> = root
        .get("b")
        .unwrap()
        .items()
        .map(|v| (v.number().unwrap(), v.as_f64().unwrap()))
        .collect();
    assert_eq!(
        infinite,
        [
            ("Infinity", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY)
        ]
    );
    assert_eq!(&*root.get("c").unwrap().text().unwrap(), "x\0\n\x1b[0m\n");
    for bad in [
        "nan",
        "-NaN",
        "+Infinity",
        "Inf",
        "-Inf",
        "[01]",
        "\"\\x\"",
        "{'a':1}",
        "[1,]",
        "-Infinit",
        "NaN1",
    ] {
        assert!(tape.parse_lax(bad.as_bytes()).is_err(), "{bad}");
    }
    assert!(tape.parse_lax(b"\"\xff\"").is_err());
}

/// Walks the JSON test suite of Nicolas Seriot where it lies beside the repository.
#[test]
fn json_test_suite() {
    let beside =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/json_test_suite");
    let folder = std::env::var_os("JSON_TEST_SUITE").map_or(beside, Into::into);
    let Ok(files) = std::fs::read_dir(&folder) else {
        println!("no JSON test suite beside the repository or in $JSON_TEST_SUITE: nothing walked");
        return;
    };
    let mut tape = Tape::new();
    let (mut accepted, mut refused) = (0, 0);
    for file in files.map(|file| file.unwrap()) {
        let name = file.file_name().into_string().unwrap();
        let valid = match name.as_bytes()[..2] {
            [b'y', b'_'] => true,
            [b'n', b'_'] => false,
            // What the RFC leaves open: any number and any escape is in; broken UTF-8, a byte order mark and UTF-16
            // are out.
            [b'i', b'_'] => {
                ["number", "surrogate", "nested"]
                    .iter()
                    .any(|word| name.contains(word))
                    && !name.contains("UTF8")
            }
            _ => continue,
        };
        let text = std::fs::read(file.path()).unwrap();
        assert_eq!(tape.parse(&text).is_ok(), valid, "{name}");
        if valid { accepted += 1 } else { refused += 1 }
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted >= 95 && refused >= 188, "the suite is not whole");
}

#[test]
fn short_decimals_are_the_nearest_doubles() {
    let mut random = XorShift::new(53);
    let mut tape = Tape::new();
    for _ in 0..100_000 {
        let digits = 2 + random.below(19);
        let mut number: String = (0..digits)
            .map(|_| char::from(b'0' + random.below(10) as u8))
            .collect();
        number.insert(1, '.');
        let doc = tape.parse(number.as_bytes()).unwrap();
        let expected: f64 = number.parse().unwrap();
        assert_eq!(doc.root().as_f64(), Some(expected), "{number}");
    }
}

// -------------------------------------------------------------------- templates

/// Reads the text with the decoder, which must not differ from the parser alone; whether a template fitted.
fn decode(decoder: &mut Decoder, text: &[u8]) -> bool {
    let mut tape = Tape::new();
    let want = tape.parse(text);
    let found = decoder.parse(text);
    match (want, found) {
        (Ok(want), Ok(found)) => {
            assert_same(&found, &want);
            found.fitted().is_some()
        }
        (Err(want), Err(found)) => {
            assert_eq!(
                (found.offset, found.reason),
                (want.offset, want.reason),
                "{}",
                text.escape_ascii()
            );
            false
        }
        (want, found) => panic!("{want:?}, but {found:?}: {}", text.escape_ascii()),
    }
}

/// One that may fit a template, and what the parser says.
fn assert_same(found: &Doc<'_>, want: &Doc<'_>) {
    let text = found.root().text;
    for at in 0..want.root().own_nodes().len() as u32 {
        let spot = Spot(at);
        let [one, other] = [found, want].map(|doc| doc.at(spot));
        assert_eq!(one.map(|it| it.raw()), other.map(|it| it.raw()), "{text}");
        assert_eq!(
            one.map(|it| (it.len(), it.is_lossy(), it.is_integer())),
            other.map(|it| (it.len(), it.is_lossy(), it.is_integer())),
            "{text}"
        );
    }
    assert_eq!(found.root().own_nodes(), want.root().own_nodes(), "{text}");
    assert_eq!(found.root().raw(), want.root().raw());
    assert_eq!(found.size(), want.root().raw().len());
    assert_eq!(found.is_object(), want.is_object());
    assert_eq!(found.has_lone_surrogate(), want.has_lone_surrogate());
}

/// As [`decode`], of a line with other bytes behind it: those that fit a template end where the line ends.
fn decode_line(decoder: &mut Decoder, text: &[u8], line_end: &[u8], rest: &[u8]) -> bool {
    let mut tape = Tape::new();
    let bytes = [text, line_end, rest].concat();
    let Some((found, line)) = decoder.parse_line(&bytes) else {
        return decoder
            .parse_unlike(text)
            .is_ok_and(|doc| doc.fitted().is_some());
    };
    let want = bytes.split_inclusive(|byte| *byte == b'\n').next().unwrap();
    let want = want.strip_suffix(b"\n").expect("an end");
    let want = want.strip_suffix(b"\r").unwrap_or(want);
    assert_eq!(line, want, "{}", bytes.escape_ascii());
    assert_same(&found, &tape.parse(line).unwrap());
    true
}

/// A record of one of a few shapes, with values of all kinds and some faults.
fn record(random: &mut XorShift) -> Vec<u8> {
    const STRINGS: [&[u8]; 17] = [
        b"",
        b"a",
        b"two words",
        b"exactly sixteen!",
        b"\\n",
        "ä".as_bytes(),
        "sixteen and more 😀".as_bytes(),
        b"a text that is longer than sixty-four bytes, so that it is not looked at for ASCII, only for its end",
        b"\\ud83d",
        b"\\ud83d\\ude00",
        b"\\u00e9\\\"",
        b"0198-a36c-4b2e-9d1f-6a6bcb5b84d2-000",
        // and what is no string:
        b"\\x",
        b"\xff",
        b"raw\ttab",
        b"\"",
        b"\\",
    ];
    const NUMBERS: [&str; 14] = [
        "0",
        "7",
        "123456789",
        "-1",
        "-0",
        "1.5",
        "0.00300",
        "2.9999999999999997e-05",
        "1E+9",
        "123456789012345678901234567890",
        "01",
        "1.",
        "-",
        "",
    ];
    const SHAPES: [&str; 6] = [
        r#"{"type":"S","usage":{"input":N,"cost":{"total":N,"fromProvider":false}},"delta":"S"}"#,
        r#"{"type":"S","usage":{"input":N,"cost":{"total":N,"fromProvider":true}},"delta":"S"}"#,
        r#"{"a":["S",{"b":[N,"S",[],{}]},null],"S":"S"}"#,
        "{ \"a\" : N ,\t\"b\":[ \"S\" ] , \"c\" :{ } }\r",
        r#"{"n":N}"#,
        r#"{"nothing":null}"#,
    ];
    let mut text = Vec::new();
    for byte in SHAPES[random.below(SHAPES.len())].bytes() {
        // Faults are rare, or nothing would ever fit.
        let faults = usize::from(random.below(20) == 0);
        match byte {
            b'S' => text.extend(STRINGS[random.below(STRINGS.len() - 5 + 5 * faults)]),
            b'N' => text.extend(NUMBERS[random.below(NUMBERS.len() - 4 + 4 * faults)].bytes()),
            byte => text.push(byte),
        }
    }
    match random.below(40) {
        0 => text.truncate(random.below(text.len())),
        1 => text.push(b'x'),
        2 => {
            let at = random.below(text.len());
            text[at] = random.next() as u8;
        }
        _ => {}
    }
    text
}

#[test]
fn a_template_changes_no_result() {
    let mut random = XorShift::new(0x7e3);
    let (mut fitted, mut all) = (0, 0);
    for _ in 0..20 {
        let mut decoder = Decoder::new();
        for _ in 0..2000 {
            fitted += usize::from(decode(&mut decoder, &record(&mut random)));
            all += 1;
        }
    }
    // A quarter of the texts are faulty, and shapes come at random: the budget does not let all others be tried.
    assert!(fitted > all / 9, "{fitted} of {all}");
}

#[test]
fn a_line_that_fits_ends_at_its_line_end() {
    const ENDS: [&[u8]; 8] = [b"\n", b"\n", b"\n", b"\r\n", b"\r\r\n", b"\r", b"", b" \n"];
    const RESTS: [&[u8]; 4] = [b"", b"{", b"\n", &[b'"'; 80]];
    let mut random = XorShift::new(0x11e);
    let (mut fitted, mut all) = (0, 0);
    for _ in 0..20 {
        let mut decoder = Decoder::new();
        for _ in 0..2000 {
            let mut text = record(&mut random);
            text.retain(|byte| *byte != b'\n');
            let [end, rest] = [random.below(8), random.below(4)];
            fitted += usize::from(decode_line(&mut decoder, &text, ENDS[end], RESTS[rest]));
            all += 1;
        }
    }
    assert!(fitted > all / 40, "{fitted} of {all}");
}

#[test]
fn a_decoder_without_templates_finds_no_shape() {
    let mut decoder = Decoder::without_templates();
    let text = SAMPLES[2].as_bytes();
    assert!((0..10).all(|_| !decode(&mut decoder, text)));
    let mut decoder = Decoder::new();
    assert!(!decode(&mut decoder, text));
    assert!(decode(&mut decoder, text));
}

#[test]
fn texts_of_one_shape_have_one_shape() {
    let mut decoder = Decoder::new();
    let mut shape = |text: &str| {
        Some(
            decoder
                .parse(text.as_bytes())
                .unwrap()
                .fitted()?
                .shape()
                .number(),
        )
    };
    assert_eq!(shape(r#"{"a":"x","n":1}"#), None);
    assert_eq!(shape(r#"{"a":"y","n":1}"#), None);
    let first = shape(r#"{"a":"z","n":1}"#);
    assert!(first.is_some());
    assert_eq!(shape(r#"{"a":"z","n":2}"#), None);
    assert_eq!(shape(r#"{"a":"","n":-3}"#), first);
    assert_eq!(shape(r#"{"a":"z","m":2}"#), None);
    assert_eq!(shape(r#"{"a":"\ud83d","n":4.5}"#), first);
}

#[test]
fn templates_are_bounded() {
    let mut decoder = Decoder::new();
    for round in 0..100_000 {
        let text = format!(r#"{{"type":"{round}","key{round}":{round}}}"#);
        decode(&mut decoder, text.as_bytes());
        decode(&mut decoder, br#"{"type":"x"}"#);
    }
    assert!(decoder.bytes() < 300 << 10, "{}", decoder.bytes());
}

#[test]
fn a_stream_that_turns_regular_is_learned_after_all() {
    let mut random = XorShift::new(0xb4d);
    for regular in [1, 3] {
        let mut decoder = Decoder::new();
        for round in 0..3000 {
            let text = format!(r#"{{"type":"x","a":{{"b":{round}}},"key{round}":"x"}}"#);
            assert!(!decode(&mut decoder, text.as_bytes()));
        }
        // It has spent all it may, and yet does not stop trying.
        let mut fitted = 0;
        for round in 0..3000 {
            let text = match round % regular {
                0 => format!(r#"{{"type":"x","a":{{"b":{round},"c":[1,2]}},"n":"w{round}"}}"#),
                1 => format!(r#"{{"type":"y","d":"w{}"}}"#, random.below(100)),
                _ => format!(r#"{{"type":"z","e":[{round}.5,true]}}"#),
            };
            fitted += usize::from(decode(&mut decoder, text.as_bytes()));
        }
        assert!(fitted > 2000, "{fitted}, {regular} shapes");
    }
}

#[test]
fn slots_that_are_no_utf8_are_errors_and_the_next_text_fits_again() {
    let mut decoder = Decoder::new();
    for text in ["ab", "b", "c"] {
        decode(
            &mut decoder,
            format!(r#"{{"a":"{text}","n":1}}"#).as_bytes(),
        );
    }
    for bad in [
        &b"\xff"[..],
        b"\xed\xa0\xbd",
        b"cut \xf0\x9f\x98",
        &[b"long ".repeat(40), b"\xc3".to_vec()].concat(),
    ] {
        let text = [br#"{"a":""#, bad, br#"","n":1}"#].concat();
        assert!(!decode(&mut decoder, &text));
        assert!(decode(&mut decoder, "{\"a\":\"ä\",\"n\":1}".as_bytes()));
    }
}
