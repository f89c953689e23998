use super::*;
use crate::report::Tally;

/// Line, offset, share, lossy, salvaged, raw.
type Seen = (u64, u64, u64, bool, bool, Vec<u8>);

fn read(chunks: &[&[u8]], options: Options) -> (Result<(), Error>, Vec<Seen>, Report) {
    let mut intake = Intake::new(options);
    let mut seen = Vec::new();
    let mut take = |record: Record<'_>, report: &mut Report| {
        report.event(&record);
        let Record {
            line,
            offset,
            share,
            lossy,
            salvaged,
            raw,
            ..
        } = record;
        seen.push((line, offset, share, lossy, salvaged, raw.to_vec()));
        Ok::<_, Error>(())
    };
    let mut result = chunks
        .iter()
        .try_for_each(|chunk| intake.feed(chunk, &mut take));
    if result.is_ok() {
        result = intake.close(&mut take);
    }
    let report = intake.report().clone();
    (result, seen, report)
}

fn lenient(stream: &[u8]) -> (Vec<Seen>, Report) {
    let (result, seen, report) = read(&[stream], Options::default());
    result.unwrap();
    (seen, report)
}

fn raws(stream: &[u8]) -> Vec<Vec<u8>> {
    lenient(stream).0.into_iter().map(|seen| seen.5).collect()
}

#[test]
fn every_byte_is_accounted_for() {
    let stream = b"\xef\xbb\xbf{\"type\":\"a\"}\r\n\n \t\r\n42\nnull\n[]\noops\n{\"type\":\"b\"}";
    let (_, report) = lenient(stream);
    assert_eq!(report.bytes(), stream.len() as u64);
    assert_eq!(
        (report.lines, report.records, report.malformed, report.blank),
        (8, 5, 1, 2)
    );
    assert_eq!(
        (
            report.event_bytes,
            report.ignored_bytes,
            report.malformed_bytes,
            report.blank_bytes
        ),
        (26, 11, 5, 8)
    );
    assert_eq!(
        report.ignored[NOT_AN_OBJECT],
        Tally {
            count: 3,
            bytes: 11
        }
    );
    assert!(!report.truncated);
    let oops = Malformed {
        line: 7,
        offset: 33,
        reason: "not JSON".into(),
        text: "oops".into(),
        size: 4,
    };
    assert_eq!(report.malformed_lines, [oops]);
}

#[test]
fn an_array_stands_for_its_elements() {
    let (seen, report) =
        lenient(b" [ {\"a\":[1,\"]\"]} ,7 ,\t{\"b\":\"x, \\\"{\"} ] \r\n{\"c\":1}\n");
    assert_eq!(
        seen,
        [
            (1, 3, 16, false, false, b"{\"a\":[1,\"]\"]}".to_vec()),
            (1, 22, 22, false, false, b"{\"b\":\"x, \\\"{\"}".to_vec()),
            (2, 41, 8, false, false, b"{\"c\":1}".to_vec()),
        ]
    );
    assert_eq!((report.ignored_bytes, report.event_bytes), (3, 46));
}

#[test]
fn reasons_are_few() {
    let deep = b"[".repeat(1025);
    let reasons: [(&[u8], &str); 14] = [
        (b"oops", "not JSON"),
        (b"{\"a\":1}}", "not JSON"),
        (b"{\"a\":NaN}", "not JSON"),
        (b"\xef\xbb\xbf1", "not JSON"),
        (b"{\"a\":", "cut off"),
        (b"[1.", "cut off"),
        (b"[tru", "cut off"),
        (b"{\"a\":\"x\\u12", "cut off"),
        (b"{\"a\":\"\xc3", "cut off"),
        (b"oops \xc3", "invalid UTF-8"),
        (b"{\"a\":\"\xff", "invalid UTF-8"),
        (b"\"\xed\xa0\xbd\"", "invalid UTF-8"),
        (&deep, "too deep"),
        (&deep[1..], "cut off"),
    ];
    for (line, reason) in reasons {
        let stream = [b"\n", line].concat();
        let (_, report) = lenient(&stream);
        let given: Vec<_> = report
            .malformed_lines
            .iter()
            .map(|line| &*line.reason)
            .collect();
        assert_eq!(given, [reason], "{}", line.escape_ascii());
        assert!(report.truncated);
    }
}

#[test]
fn strict_stops_at_the_line_and_stays_there() {
    let mut intake = Intake::new(Options {
        strict: true,
        ..Options::default()
    });
    let mut seen = 0;
    let mut take = |_: Record<'_>, _: &mut Report| {
        seen += 1;
        Ok::<_, Error>(())
    };
    for _ in 0..2 {
        match intake.feed(b"{}\n{}{}\n{}\n", &mut take) {
            Err(Error::Malformed(line)) => assert_eq!((line.line, line.offset), (2, 3)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, 1);
}

#[test]
fn lines_that_are_too_long_are_malformed() {
    let options = Options {
        max_line_bytes: 20,
        ..Options::default()
    };
    let (result, seen, report) = read(
        &[
            b"{\"type\":\"xxxxxxxxxxxxxxx",
            b"xxxx\"}\n{\"type\":\"b\"}\n",
        ],
        options,
    );
    result.unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(report.malformed_lines[0].reason, "line too long");
    assert_eq!(report.malformed_bytes, 31);
}

const A: &str = r#"{"type":"message","timestamp":1,"message":{"role":"user","content":[{"type":"text","text":"one"}]}}"#;
const B: &str = r#"{"type":"message","timestamp":2,"message":{"role":"user","content":[{"type":"text","text":"two"}]}}"#;

#[test]
fn whole_records_on_a_damaged_line_are_got_back() {
    for line in [
        format!("{A}{B}"),
        format!("{A} \t{B}"),
        format!("\0\0\0{A}{B}\0\0\0"),
        format!("\x1b[2K\x1b[1;31m{A}{B}\x1b[0m"),
        format!("\x1b]0;title\x07\x1b]0;title\x1b\\{A}{B}\x1b[?25h\r"),
        format!("\u{feff}\x07{A}{B}"),
    ] {
        let (seen, report) = lenient(format!("\n{line}\n").as_bytes());
        let found: Vec<_> = seen
            .iter()
            .map(|seen| (seen.2, seen.4, &seen.5[..]))
            .collect();
        assert_eq!(
            found,
            [(0, true, A.as_bytes()), (0, true, B.as_bytes())],
            "{line}"
        );
        assert_eq!((report.malformed, report.salvaged), (1, 2));
        assert_eq!(report.bytes(), line.len() as u64 + 2);
    }
}

#[test]
fn nothing_else_is_taken_for_a_record() {
    for line in [
        format!("INFO {A}"),
        format!("{A} done"),
        format!("[{A},{B}"),
        format!("{A}{}", &B[..B.len() - 1]),
        format!("{{\"type\":\"x\",\"inner\":{A}"),
        format!("{{\"type\":\"x\",\"inner\":[{A},{B}"),
        "{\"a\":1}{\"b\":2}".to_owned(),
        "{".to_owned(),
    ] {
        assert!(raws(line.as_bytes()).is_empty(), "{line}");
    }
}

#[test]
fn a_record_that_cuts_into_another_is_got_back() {
    for at in 1..A.len() {
        let torn = &A[..at];
        let found = raws(format!("{torn}{B}\n").as_bytes());
        // Where a value is due, the other record could as well be nested: it is not taken.
        if torn.ends_with([':', '[']) {
            assert!(found.is_empty(), "{torn}");
        } else {
            assert_eq!(found, [B.as_bytes()], "{torn}");
        }
    }
    let thrice = format!("{}{}{}{B}{A}", &A[..90], &B[..90], &A[..40]);
    assert_eq!(raws(thrice.as_bytes()), [B.as_bytes(), A.as_bytes()]);
}

#[test]
fn invalid_utf8_is_replaced_and_flagged() {
    let mut texts = Vec::new();
    let mut take = |record: Record<'_>, _: &mut Report| {
        texts.push((
            record
                .value()
                .get("a")
                .unwrap()
                .text()
                .unwrap()
                .into_string(),
            record.lossy,
        ));
        Ok::<_, Error>(())
    };
    let mut intake = Intake::default();
    let stream = b"{\"type\":\"x\",\"a\":\"caf\xe9 \xe6\x8f\"}{\"type\":\"x\",\"a\":\"ok\"}\n";
    intake.feed(stream, &mut take).unwrap();
    assert_eq!(
        texts,
        [
            ("caf\u{fffd} \u{fffd}".to_owned(), true),
            ("ok".to_owned(), false)
        ]
    );
    assert_eq!(intake.report().lossy, 1);
}

#[test]
fn names_that_the_input_chooses_stay_few_and_short() {
    let mut intake = Intake::default();
    let mut take = |record: Record<'_>, report: &mut Report| {
        let kind = record.native_type().map(|kind| kind.lossy().into_owned());
        report.unknown_type(&record, kind.as_deref());
        Ok::<_, Error>(())
    };
    for number in 0..1500 {
        let line = format!("{{\"type\":\"{number}{}\"}}\n{{}}\n", "é".repeat(200));
        intake.feed(line.as_bytes(), &mut take).unwrap();
    }
    let unknown = &intake.report().unknown;
    assert_eq!(
        (
            unknown.len(),
            unknown["(none)"].count,
            unknown["(other)"].count
        ),
        (1001, 1500, 501)
    );
    assert!(unknown.keys().all(|name| name.chars().count() <= 100));
}

/// Knows every object for a document; counts records and their shares.
#[derive(Default)]
struct Documents(Vec<(u64, u64, u64)>);

impl Consumer<Error> for Documents {
    fn record(&mut self, record: Record<'_>, report: &mut Report) -> Result<(), Error> {
        report.event(&record);
        self.0.push((record.line, record.offset, record.share));
        Ok(())
    }

    fn is_document(&self, _value: Value<'_>) -> bool {
        true
    }
}

#[test]
fn a_pretty_document_is_one_record_and_a_damaged_stream_is_none() {
    let read = |stream: &[u8], size: usize| {
        let (mut intake, mut seen) = (Intake::default(), Documents::default());
        for chunk in stream.chunks(size) {
            intake.feed(chunk, &mut seen).unwrap();
        }
        intake.close(&mut seen).unwrap();
        let report = intake.report();
        assert_eq!(report.bytes(), stream.len() as u64);
        (seen.0, report.lines, report.malformed, report.blank)
    };
    for size in [1, 5, 1000] {
        let document = b"\n{\r\n  \"a\": [\r\n    {}\r\n  ]\r\n}\r\n\n";
        assert_eq!(read(document, size), (vec![(2, 1, 29)], 7, 0, 2));
        let stream = b"{\n  \"a\": [\n{\"b\":1}\n  ]\n}\n";
        assert_eq!(read(stream, size), (vec![(3, 11, 8)], 5, 4, 0));
        assert_eq!(read(b"{\n\"a\": 1\n", size), (vec![], 2, 2, 0));
        let array = b"\n[\n  {\n    \"type\": \"x\"\n  },\n  {\n  }\n]\n";
        assert_eq!(read(array, size), (vec![(3, 5, 25), (6, 30, 12)], 8, 0, 1));
    }
}
