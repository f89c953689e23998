//! What the target `templates` and the example `blind` run: streams read with templates and without, by the decoder and
//! by the parser. No result may differ.
//!
//! The input is a program that makes a stream of records that are alike: lines of recordings, and a few made for this,
//! with other values in their slots. The first bytes choose the recording, what is compared, and the chunks; [`Maker`]
//! has the rest.

mod inputs;
mod maker;

use std::fmt::Write;
use std::sync::LazyLock;

use headrace_core::dialect::Dialect;
use headrace_core::event::{Event, Kind, Kinds, Sink};
use headrace_core::json::{Decoded, Decoder, Forms, JsonError, Paths, Value};
use headrace_core::parser::{NoOutput, Output, Parser};
use headrace_core::record::{Error, Options, Record};
use headrace_core::report::Malformed;
use headrace_core::run::Exit;
pub use inputs::Inputs;
use maker::{Maker, Shape, made_up, shapes_of};

macro_rules! recordings {
    ($($name:literal)*) => {
        [$(include_bytes!(concat!("../../../tests/data/recordings/", $name, ".jsonl.gz")).as_slice()),*]
    };
}

/// One of each kind of recording: its short lines, one of each shape.
static RECORDINGS: LazyLock<Vec<Recording>> = LazyLock::new(|| {
    let packed = recordings!(
        "pi/tools-gemini" "claude/plan_partial" "codex/v098-appserver-tools" "codex/v050-mcpserver-tools"
        "copilot/plan" "droid/tools" "evosci/plan" "gemini/plan" "kimi/plan.wire" "kimi/tools.session"
        "kimi-code/tools.session" "minicode/other-events" "opencode/v1.1.34-plan.storage-files" "qwen/plan_partial"
        "acp-claude/plan" "acp-codex/tools" "acp-copilot/plan" "acp-gemini/session_fs" "acp-opencode/tools"
    );
    packed.into_iter().map(Recording::new).collect()
});
static MADE_UP: LazyLock<Vec<Shape>> = LazyLock::new(made_up);

struct Recording {
    dialect: Option<&'static Dialect>,
    shapes: Vec<Shape>,
}

impl Recording {
    fn new(packed: &[u8]) -> Self {
        let mut stream = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(packed), &mut stream)
            .expect("a recording");
        let mut parser = Parser::new(None, Kinds::NONE, Options::default());
        let read = parser
            .feed(&stream, &mut NoOutput)
            .and_then(|()| parser.close(&mut NoOutput));
        read.expect("nothing is strict");
        Recording {
            dialect: parser.detection().map(|found| found.dialect),
            shapes: shapes_of(&stream),
        }
    }
}

/// What an input says.
pub struct Case {
    dialect: Option<&'static Dialect>,
    lines: Vec<Vec<u8>>,
    options: u8,
    chunk: u8,
}

impl Case {
    /// None of an input that is too short to say anything.
    pub fn new(input: &[u8]) -> Option<Self> {
        let [recording, options, chunk, program @ ..] = input else {
            return None;
        };
        let recording = &RECORDINGS[usize::from(*recording) % RECORDINGS.len()];
        Some(Case {
            dialect: recording.dialect.filter(|_| options & 4 != 0),
            lines: Maker::new(program, &recording.shapes, &MADE_UP).lines(),
            options: *options,
            chunk: *chunk,
        })
    }

    /// Its lines as a stream.
    pub fn stream(&self) -> Vec<u8> {
        let end: &[u8] = match self.options & 8 != 0 {
            true => b"\r\n",
            false => b"\n",
        };
        let mut stream = self.lines.join(end);
        if self.options & 0x80 != 0 {
            stream.extend(end);
        }
        stream
    }
}

/// Panics if the stream that the input makes is read otherwise with templates than without.
pub fn check(input: &[u8]) {
    let Some(case) = Case::new(input) else {
        return;
    };
    decode(&case.lines);
    // The parser takes many times as long: some of the inputs.
    if case.options % 4 != 0 {
        return;
    }
    let dialect = case.dialect;
    let strict = case.options & 0x70 == 0x70;
    let stream = case.stream();
    let chunk = match case.chunk {
        0 => stream.len().max(1),
        size => usize::from(size) * 8 - 7,
    };
    let parser = || {
        let kinds = Kinds::EVENTS.with(Kind::State);
        Parser::new(
            dialect,
            kinds,
            Options {
                strict,
                ..Options::default()
            },
        )
        .with_records()
    };
    let with = read(parser(), &stream, chunk);
    let without = read(parser().without_templates(), &stream, chunk);
    assert_eq!(with, without, "{}", stream.escape_ascii());
    // Where nobody wants the records, the mapper does not see every one.
    let told = |kinds: Kinds| {
        let options = Options {
            strict,
            ..Options::default()
        };
        let want = Parser::new(dialect, kinds, options).without_templates();
        let want = read(want, &stream, chunk);
        let got = read(Parser::new(dialect, kinds, options), &stream, chunk);
        assert_eq!(got, want, "{}", stream.escape_ascii());
        want
    };
    told(Kinds::EVENTS);
    let want = told(Kinds::NONE);
    let options = Options {
        strict,
        ..Options::default()
    };
    let run = read_decoded(Parser::new(dialect, Kinds::NONE, options), &stream, chunk);
    assert_eq!(run, want, "in rows: {}", stream.escape_ascii());
}

/// Panics if a parser that was stopped and restored reads on otherwise than one that was not; and if a snapshot in which
/// bytes were changed makes a parser panic.
///
/// The first byte says how many bytes are changed, by the next three each: where, and to what. What a [`Case`] is made of
/// follows; it is stopped in the middle.
pub fn check_snapshot(input: &[u8]) {
    let Some((count, rest)) = input.split_first() else {
        return;
    };
    let Some((changes, rest)) = rest.split_at_checked(3 * usize::from(count % 8)) else {
        return;
    };
    let Some(case) = Case::new(rest) else {
        return;
    };
    let (stream, options) = (case.stream(), Options::default());
    let (before, after) = stream.split_at(stream.len() / 2);
    let stopped = || {
        let mut parser = Parser::new(case.dialect, Kinds::EVENTS, options);
        let fed = parser.feed(before, &mut NoOutput);
        fed.is_ok().then_some(parser)
    };
    let (Some(mut parser), Some(unbroken)) = (stopped(), stopped()) else {
        return; // it is UTF-16
    };
    let mut snapshot = parser.snapshot().expect("a parser has one");
    let restored = Parser::restore(&snapshot).expect("it was made just now");
    let chunk = after.len().max(1);
    let (went_on, want) = (read(restored, after, chunk), read(unbroken, after, chunk));
    assert_eq!(went_on, want, "{}", stream.escape_ascii());
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % snapshot.len();
        snapshot[at] = change[2];
    }
    if let Some(mut forged) = Parser::restore(&snapshot) {
        let again = forged.snapshot().expect("a parser has one");
        assert!(Parser::restore(&again).is_some());
        read(forged, after, chunk);
    }
}

const PATHS: [&[&str]; 5] = [
    &["type"],
    &["message", "content"],
    &["a", "b"],
    &["n"],
    &["params", "update"],
];

fn decode(lines: &[Vec<u8>]) {
    let mut with = Decoder::new();
    let mut without = Decoder::without_templates();
    let (mut known, mut unknown) = (Paths::default(), Paths::default());
    for line in lines {
        let (found, want) = match (with.parse(line), without.parse(line)) {
            (Ok(found), Ok(want)) => (found, want),
            (Err(JsonError { offset, reason }), Err(want)) => {
                assert_eq!(
                    (offset, reason),
                    (want.offset, want.reason),
                    "{}",
                    line.escape_ascii()
                );
                continue;
            }
            (found, want) => panic!("{found:?}, not {want:?}: {}", line.escape_ascii()),
        };
        assert_eq!(found.has_lone_surrogate(), want.has_lone_surrogate());
        assert!(want.fitted().is_none());
        let spots = known.spots(&PATHS, &found);
        let wanted = unknown.spots(&PATHS, &want);
        for (spot, wanted) in spots.into_iter().zip(wanted) {
            assert_eq!(
                found.at(spot).map(|it| it.raw()),
                want.at(wanted).map(|it| it.raw())
            );
        }
        assert!(same(found.root(), want.root()), "{}", line.escape_ascii());
    }
}

/// Whether two readings of one text agree in all that can be asked of them.
fn same<'a>(value: Value<'a>, other: Value<'a>) -> bool {
    scalars(value) == scalars(other)
        && value.items().count() == other.items().count()
        && value.entries().count() == other.entries().count()
        && value
            .items()
            .zip(other.items())
            .all(|(value, other)| same(value, other))
        && value
            .entries()
            .zip(other.entries())
            .all(|((key, value), (name, other))| {
                (key.is_lossy(), key.wtf8()) == (name.is_lossy(), name.wtf8()) && same(value, other)
            })
}

/// What can be asked of a value that holds no others.
fn scalars<'a>(value: Value<'a>) -> impl PartialEq + 'a {
    (
        (
            value.kind(),
            value.raw(),
            value.len(),
            value.as_bool(),
            value.number(),
            value.is_integer(),
        ),
        (
            value.as_i64(),
            value.as_u64(),
            value.as_f64().map(f64::to_bits),
        ),
        value.as_str().map(|text| (text.is_lossy(), text.wtf8())),
    )
}

/// All that comes out of a parser, in one text.
fn read(parser: Parser, stream: &[u8], chunk: usize) -> String {
    let mut chunks = stream.chunks(chunk);
    tell(parser, |parser, told| {
        chunks.try_for_each(|chunk| parser.feed(chunk, told))
    })
}

/// The same of a parser that gets pieces which were decoded before.
fn read_decoded(parser: Parser, stream: &[u8], chunk: usize) -> String {
    let (mut decoder, mut piece) = (Decoder::new(), Decoded::default());
    let mut forms = None;
    let mut chunks = stream.chunks(chunk);
    tell(parser, |parser, told| {
        chunks.try_for_each(|chunk| {
            if let Some(series) = parser.series().get() {
                forms.get_or_insert_with(|| Forms::new(series, false));
            }
            piece.room().splice(..0, chunk.iter().copied());
            piece.decode(chunk.len(), &mut decoder, forms.as_mut());
            let rest = parser.feed_decoded(&piece, 0, usize::MAX, told)?;
            assert_eq!(rest, None);
            Ok(())
        })
    })
}

fn tell(
    mut parser: Parser,
    feed: impl FnOnce(&mut Parser, &mut Told) -> Result<(), Error>,
) -> String {
    let mut told = Told(String::new());
    let fed = feed(&mut parser, &mut told);
    let result = fed.and_then(|()| parser.close(&mut told));
    let Told(mut text) = told;
    let exit = Exit::default();
    let run = parser.run(&exit).to_raw();
    let run = String::from_utf8_lossy(&run);
    write!(
        text,
        "{result:?} {:?} {:?} {run}",
        parser.offset(),
        parser.report()
    )
    .expect("a string");
    text
}

struct Told(String);

impl Told {
    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        self.0.write_fmt(what).expect("a string");
        self.0.push('\n');
    }
}

impl Sink for Told {
    fn take(&mut self, event: &Event<'_>) {
        self.note(format_args!("{event:?}"));
    }
}

impl Output for Told {
    fn record(&mut self, record: &Record<'_>) {
        let Record {
            json,
            raw,
            line,
            offset,
            share,
            lossy,
            salvaged,
            ..
        } = record;
        let has_lone_surrogate = json.has_lone_surrogate();
        let kind = (
            record.kind().as_deref().map(str::to_owned),
            record.native_type().map(|kind| kind.wtf8().to_vec()),
        );
        self.note(format_args!(
            "{line} {offset} {share} {lossy} {salvaged} {has_lone_surrogate} {kind:?} {}",
            raw.len()
        ));
    }

    fn malformed(&mut self, line: &Malformed) {
        self.note(format_args!("{line:?}"));
    }
}
