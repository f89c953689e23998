//! Any chunking gives the same lines, records and report as the whole stream, and no byte is lost.
//!
//! The first byte of the input chooses the line limit, the second how many of the next bytes are chunk sizes.
#![no_main]

use headrace_core::frame::{DEFAULT_MAX_LINE_BYTES, Framer, Line};
use headrace_core::record::{Error, Intake, Options, Record};
use headrace_core::report::Report;
use libfuzzer_sys::fuzz_target;

type Lines = Vec<(u64, u64, u64, Vec<u8>, bool, bool)>;
type Records = Vec<(u64, u64, u64, bool, bool, Vec<u8>)>;

fuzz_target!(|input: &[u8]| {
    let [limit, count, rest @ ..] = input else {
        return;
    };
    let limit = if limit % 4 == 0 {
        u64::from(*limit)
    } else {
        DEFAULT_MAX_LINE_BYTES
    };
    let Some((sizes, stream)) = rest.split_at_checked(usize::from(count % 16)) else {
        return;
    };
    let mut chunks = Vec::new();
    let mut left = stream;
    for size in sizes.iter().cycle().take(2 * stream.len()) {
        let (chunk, after) = left.split_at(left.len().min(usize::from(*size)));
        chunks.push(chunk);
        left = after;
    }
    chunks.push(left);

    let whole = (lines(&[stream], limit), read(&[stream], limit));
    assert_eq!((lines(&chunks, limit), read(&chunks, limit)), whole);

    let ((framed, bom), (records, report)) = whole;
    let Ok((framed, bom)) = framed.map(|framed| (framed, bom)) else {
        return;
    };
    let sizes: u64 = framed.iter().map(|line| line.2).sum();
    assert_eq!(sizes + bom, stream.len() as u64);
    assert_eq!(report.bytes(), stream.len() as u64);
    assert_eq!(
        report.lines,
        report.records + report.malformed + report.blank
    );
    assert_eq!(report.lines, framed.len() as u64);
    for (_, offset, _, _, salvaged, raw) in records {
        assert!(stream[offset as usize..].starts_with(&raw));
        assert!(raw.contains(&b'{') && (!salvaged || raw.starts_with(b"{")));
    }
});

fn lines(chunks: &[&[u8]], limit: u64) -> (Result<Lines, String>, u64) {
    let mut framer = Framer::new(limit);
    let mut lines = Vec::new();
    let mut take = |line: Line<'_>| {
        let Line {
            number,
            offset,
            size,
            body,
            ended,
            too_long,
        } = line;
        lines.push((number, offset, size, body.to_vec(), ended, too_long));
        Ok::<_, Error>(())
    };
    let result = chunks
        .iter()
        .try_for_each(|chunk| framer.feed(chunk, &mut take));
    let result = result.and_then(|()| framer.close(&mut take));
    (
        result.map(|()| lines).map_err(|error| error.to_string()),
        framer.take_bom(),
    )
}

fn read(chunks: &[&[u8]], max_line_bytes: u64) -> (Records, Report) {
    let mut intake = Intake::new(Options {
        strict: false,
        max_line_bytes,
    });
    let mut records = Vec::new();
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
        records.push((line, offset, share, lossy, salvaged, raw.to_vec()));
        Ok::<_, Error>(())
    };
    let result = chunks
        .iter()
        .try_for_each(|chunk| intake.feed(chunk, &mut take));
    let _ = result.and_then(|()| intake.close(&mut take));
    (records, intake.report().clone())
}
