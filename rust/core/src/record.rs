//! lines -> records: decodes each line, keeps the account, and gets back what a damaged line still holds.

mod document;
mod salvage;

use std::borrow::Cow;
use std::fmt;

use crate::event::Place;
use crate::frame::{DEFAULT_MAX_LINE_BYTES, Framer, Line, Lines, MAX_TEXT_BYTES, Rest};
use crate::json::{
    self, Decoder, Doc, Head, JsonError, Known, Part, Paths, Pattern, Plans, Reason, Row, Spot,
    Str, Stretch, Tape, Text, Value,
};
use crate::report::{Malformed, Report};
use crate::source::SourceError;
use document::Held;
use memchr::memchr_iter;
use serde::{Deserialize, Serialize};

pub use salvage::looks_like_record;

/// The rule by which valid JSON that is no record is ignored.
pub const NOT_AN_OBJECT: &str = "not an object";

/// One JSON object of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What it says. Some string may have an unpaired half of a surrogate pair: its own or, in an array's line, one of a
    /// neighbour.
    pub json: Doc<'a>,
    /// The bytes of its JSON text as they came.
    pub raw: &'a [u8],
    /// Number of its line, 1-based.
    pub line: u64,
    /// Byte offset of `raw` in the stream.
    pub offset: u64,
    /// The bytes of the input that it stands for: its line with LF, its part of an array's line, 0 if salvaged.
    pub share: u64,
    /// Something in its text became U+FFFD.
    pub lossy: bool,
    /// It comes from a malformed line.
    pub salvaged: bool,
    /// Its `type`, if that is a string.
    pub kind: Option<Str<'a>>,
}

impl<'a> Record<'a> {
    #[inline]
    pub fn value(&self) -> Value<'a> {
        self.json.root()
    }

    /// What a harness calls this kind of record: `type`, else `method`, else `msg.type`, `message.type` or
    /// `update.sessionUpdate`, else `role`.
    pub fn native_type(&self) -> Option<Str<'a>> {
        self.kind.or_else(|| native_type(self.value()))
    }

    /// Its `type`, if that is a string.
    #[inline]
    pub fn kind(&self) -> Option<Text<'a>> {
        self.kind.map(Text::from)
    }

    /// [`Paths::spots`] in this record.
    #[inline]
    pub fn spots<const N: usize>(&self, paths: &[&[&str]; N], known: &mut Paths<N>) -> [Spot; N] {
        known.spots(paths, &self.json)
    }

    /// [`Plans::of`] this record, if it fits a pattern.
    #[inline]
    pub fn plan<T: Copy>(
        &self,
        known: &mut Plans<T>,
        make: impl FnOnce(&Pattern) -> Option<T>,
    ) -> Option<T> {
        let pattern = self.json.fitted()?.pattern();
        known.of(pattern, || make(pattern))
    }

    /// Where it stands in the stream.
    #[inline]
    pub fn place(&self) -> Place {
        Place {
            line: self.line,
            offset: self.offset,
            size: self.raw.len() as u64,
        }
    }
}

/// See [`Record::native_type`].
pub fn native_type(value: Value<'_>) -> Option<Str<'_>> {
    string_at(value, "type")
        .or_else(|| string_at(value, "method"))
        .or_else(|| {
            let inner = |(holder, key)| string_at(value.get(holder)?, key);
            INNER_TYPES.into_iter().find_map(inner)
        })
        .or_else(|| string_at(value, "role"))
}

const TYPE: [&[&str]; 1] = [&["type"]];

const INNER_TYPES: [(&str, &str); 3] = [
    ("msg", "type"),
    ("message", "type"),
    ("update", "sessionUpdate"),
];

fn string_at<'a>(value: Value<'a>, key: &str) -> Option<Str<'a>> {
    value.get(key)?.as_str()
}

/// What ends the reading of a stream.
#[derive(Debug)]
pub enum Error {
    /// Met in strict mode.
    Malformed(Malformed),
    Source(SourceError),
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        Error::Source(error)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Malformed(Malformed {
                line,
                offset,
                reason,
                ..
            }) => {
                write!(
                    f,
                    "line {line} (byte offset {offset}) is not valid JSON: {reason}"
                )
            }
            Error::Source(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

/// Takes what an [`Intake`] finds, in the order of the stream. Any `FnMut(Record, &mut Report)` is one.
pub trait Consumer<E> {
    /// Calls one of the three methods of the report for each record.
    fn record(&mut self, record: Record<'_>, report: &mut Report) -> Result<(), E>;

    /// What is to be known of the last record to tell which records go on with it, if the consumer takes a
    /// [`row`](Consumer::row) of them; and whether it asks for each of its parts.
    #[inline]
    fn head(&self) -> Option<(&Head, bool)> {
        None
    }

    /// Takes records that go on with the last one, if it knows how; else [`record`](Consumer::record) is called for each.
    /// The place is that of the last of them.
    fn row(&mut self, _row: &Row<'_>, _place: Place) -> bool {
        false
    }

    /// Called for each malformed line, before what is salvaged from it.
    fn malformed(&mut self, _line: &Malformed) -> Result<(), E> {
        Ok(())
    }

    /// Whether an object found on a damaged line has the shape of a top-level record. A consumer that knows the dialect
    /// knows better.
    fn is_record(&self, value: Value<'_>) -> bool {
        looks_like_record(value)
    }

    /// Whether an object that is the whole source is a document of some dialect: see [`document`].
    fn is_document(&self, _value: Value<'_>) -> bool {
        false
    }
}

impl<F, E> Consumer<E> for F
where
    F: FnMut(Record<'_>, &mut Report) -> Result<(), E>,
{
    #[inline]
    fn record(&mut self, record: Record<'_>, report: &mut Report) -> Result<(), E> {
        self(record, report)
    }
}

/// How an [`Intake`] reads.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Options {
    /// Salvage nothing, and stop at the first malformed line.
    pub strict: bool,
    pub max_line_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            strict: false,
            max_line_bytes: DEFAULT_MAX_LINE_BYTES,
        }
    }
}

/// Bytes in, records out, with the account. A good line costs no allocation.
#[derive(Debug, Deserialize, Serialize)]
pub struct Intake {
    framer: Framer,
    reader: Reader,
    failed: Option<Malformed>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Reader {
    #[serde(skip)]
    decoder: Decoder,
    /// Of [`TYPE`].
    #[serde(skip)]
    types: Paths<1>,
    /// Of a row.
    #[serde(skip)]
    texts: String,
    #[serde(skip)]
    parts: Vec<Part>,
    report: Report,
    options: Options,
    /// There were none but blank lines.
    at_start: bool,
    /// What may be a document.
    held: Option<Held>,
    /// Lines may be elements of an array that was cut off.
    rows: bool,
}

impl Default for Intake {
    fn default() -> Self {
        Intake::new(Options::default())
    }
}

impl Intake {
    pub fn new(options: Options) -> Self {
        Intake {
            framer: Framer::new(options.max_line_bytes),
            reader: Reader {
                decoder: Decoder::new(),
                types: Paths::default(),
                texts: String::new(),
                parts: Vec::new(),
                report: Report::default(),
                options,
                at_start: true,
                held: None,
                rows: false,
            },
            failed: None,
        }
    }

    /// The same intake without [templates](crate::json::Decoder): only for comparison, no result may differ.
    pub fn without_templates(mut self) -> Self {
        self.reader.decoder = Decoder::without_templates();
        self
    }

    /// How many bytes were fed.
    pub fn fed(&self) -> u64 {
        self.framer.fed()
    }

    /// Whether a restored intake is one that can be.
    pub(crate) fn is_sound(&self) -> bool {
        self.framer.is_sound() && self.reader.held.as_ref().is_none_or(Held::is_sound)
    }

    pub fn report(&self) -> &Report {
        &self.reader.report
    }

    pub fn report_mut(&mut self) -> &mut Report {
        &mut self.reader.report
    }

    /// Gives the consumer the records of the lines that end in this chunk.
    pub fn feed<E: From<Error> + From<SourceError>>(
        &mut self,
        chunk: &[u8],
        consumer: &mut impl Consumer<E>,
    ) -> Result<(), E> {
        self.go_on()?;
        let (framer, mut lines) = self.reading(consumer);
        let result = framer.feed(chunk, &mut lines);
        self.reader.report.blank_bytes += self.framer.take_bom();
        result
    }

    /// As [`feed`](Intake::feed), of a piece that another decoder has read: the lines from `from` on, of about so many
    /// bytes. The number of the next one; None when there is none.
    pub fn feed_decoded<E: From<Error> + From<SourceError>>(
        &mut self,
        piece: &json::Decoded,
        mut from: usize,
        about: usize,
        consumer: &mut impl Consumer<E>,
    ) -> Result<Option<usize>, E> {
        if !self.framer.is_between_lines() {
            match piece.stretches(0).next() {
                Some(Stretch::Line(body, _)) if !self.framer.is_at_start() => {
                    // It was decoded as a line, and is the end of one.
                    self.feed(&piece.bytes()[..body.len() + 1], consumer)?;
                    from = 1;
                }
                _ => return self.feed(piece.bytes(), consumer).map(|()| None),
            }
        }
        self.go_on()?;
        let (framer, mut lines) = self.reading(consumer);
        let mut size = 0;
        for (at, stretch) in (from..).zip(piece.stretches(from)) {
            if size >= about {
                return Ok(Some(at));
            }
            match stretch {
                Stretch::Line(body, known) => {
                    size += body.len() + 1;
                    let before = known.map_or(Before::Nothing, Before::Decoded);
                    lines.take(&framer.whole_line(body), before)?;
                }
                Stretch::Row(row) => {
                    size += row.bytes.len();
                    if !lines.take_row(&row, framer) {
                        framer.feed(row.bytes, &mut lines)?;
                    }
                }
            }
        }
        self.feed(piece.rest(), consumer).map(|()| None)
    }

    /// Gives the consumer the records of a last line without LF.
    pub fn close<E: From<Error> + From<SourceError>>(
        &mut self,
        consumer: &mut impl Consumer<E>,
    ) -> Result<(), E> {
        self.go_on()?;
        let (framer, mut lines) = self.reading(consumer);
        framer.close(&mut lines)?;
        let Reading {
            reader,
            failed,
            consumer,
        } = lines;
        reader.document(failed, consumer)?;
        reader.decoder = Decoder::new(); // a run may be kept for long, and needs no templates
        Ok(())
    }

    fn reading<'i, C>(&'i mut self, consumer: &'i mut C) -> (&'i mut Framer, Reading<'i, C>) {
        let Intake {
            framer,
            reader,
            failed,
        } = self;
        let reading = Reading {
            reader,
            failed,
            consumer,
        };
        (framer, reading)
    }

    fn go_on(&self) -> Result<(), Error> {
        match &self.failed {
            Some(line) => Err(Error::Malformed(line.clone())),
            None => Ok(()),
        }
    }
}

/// An intake that takes lines.
struct Reading<'i, C> {
    reader: &'i mut Reader,
    failed: &'i mut Option<Malformed>,
    consumer: &'i mut C,
}

impl<E: From<Error>, C: Consumer<E>> Lines<E> for Reading<'_, C> {
    #[inline]
    fn ahead(&mut self, rest: Rest<'_>) -> Result<Option<(u64, u64)>, E> {
        self.reader.ahead(rest, self.consumer)
    }

    #[inline]
    fn line(&mut self, line: Line<'_>, asked: bool) -> Result<(), E> {
        let before = match asked {
            true => Before::Unlike,
            false => Before::Nothing,
        };
        self.take(&line, before)
    }
}

/// What is known of a line before it is read.
enum Before<'a> {
    Nothing,
    /// It is unlike others before it.
    Unlike,
    Decoded(Known<'a>),
}

impl<C> Reading<'_, C> {
    #[inline]
    fn take<E: From<Error>>(&mut self, line: &Line<'_>, before: Before<'_>) -> Result<(), E>
    where
        C: Consumer<E>,
    {
        let Reading {
            reader,
            failed,
            consumer,
        } = self;
        reader.report.lines += 1;
        match reader.held {
            Some(_) => reader.hold(line, failed, *consumer),
            None => reader.read(line, before, failed, *consumer),
        }
    }

    /// Takes the records of a row, if the consumer knows what they go on with.
    fn take_row<E>(&mut self, row: &Row<'_>, framer: &mut Framer) -> bool
    where
        C: Consumer<E>,
    {
        let (number, offset) = framer.next();
        let Reading {
            reader, consumer, ..
        } = self;
        let taken = reader.held.is_none()
            && row.longest <= framer.max_line_bytes()
            && consumer.row(row, place_of_last(row, number, offset));
        if taken {
            framer.pass(row.count, row.bytes.len() as u64);
            reader.report.row(row);
        }
        taken
    }
}

/// Where the last record of a row stands that begins with this line, at this offset.
fn place_of_last(row: &Row<'_>, number: u64, offset: u64) -> Place {
    let (start, size) = row.last;
    Place {
        line: number + row.count - 1,
        offset: offset + start,
        size,
    }
}

impl Reader {
    /// Takes a line that is like others before it, or a row of them: no need to look for their ends first.
    #[inline]
    fn ahead<E>(
        &mut self,
        rest: Rest<'_>,
        consumer: &mut impl Consumer<E>,
    ) -> Result<Option<(u64, u64)>, E> {
        if self.held.is_some() {
            return Ok(None);
        }
        if let Some((head, each)) = consumer.head() {
            self.texts.clear();
            self.parts.clear();
            let parts = each.then_some(&mut self.parts);
            let row = self.decoder.row(head, rest.bytes, &mut self.texts, parts);
            if let Some(row) = row
                && consumer.row(&row, place_of_last(&row, rest.number, rest.offset))
            {
                self.report.row(&row);
                return Ok(Some((row.count, row.bytes.len() as u64)));
            }
        }
        let Some((json, raw)) = self.decoder.parse_line(rest.bytes) else {
            return Ok(None);
        };
        let share = raw.len() as u64 + 1 + u64::from(rest.bytes[raw.len()] == b'\r');
        self.at_start = false;
        self.report.lines += 1;
        self.report.records += 1;
        let [kind] = self.types.spots(&TYPE, &json);
        let record = Record {
            json,
            raw,
            line: rest.number,
            offset: rest.offset,
            share,
            lossy: false,
            salvaged: false,
            kind: json.at(kind).and_then(|kind| kind.as_str()),
        };
        consumer.record(record, &mut self.report)?;
        Ok(Some((1, share)))
    }

    #[inline]
    fn read<E: From<Error>>(
        &mut self,
        line: &Line<'_>,
        before: Before<'_>,
        failed: &mut Option<Malformed>,
        consumer: &mut impl Consumer<E>,
    ) -> Result<(), E> {
        let at_start = std::mem::replace(&mut self.at_start, false);
        let Reader {
            decoder,
            types,
            report,
            ..
        } = self;
        if line.too_long {
            return self.malformed(line, "line too long", failed, consumer);
        }
        let parsed = match before {
            Before::Nothing => decoder.parse(line.body),
            Before::Unlike => decoder.parse_unlike(line.body),
            Before::Decoded(known) => Ok(decoder.recall(known)),
        };
        let doc = match parsed {
            Ok(doc) => doc,
            Err(error) => return self.not_json(line, error, at_start, failed, consumer),
        };
        report.records += 1;
        if doc.is_object() {
            let [kind] = types.spots(&TYPE, &doc);
            let record = Record {
                json: doc,
                raw: line.body,
                line: line.number,
                offset: line.offset,
                share: line.size,
                lossy: false,
                salvaged: false,
                kind: doc.at(kind).and_then(|kind| kind.as_str()),
            };
            return consumer.record(record, report);
        }
        let value = doc.root();
        if value.is_empty() {
            report.ignore_bytes(line.size, NOT_AN_OBJECT);
            return Ok(());
        }
        let place = Place {
            line: line.number,
            offset: line.offset,
            size: line.size,
        };
        elements(doc, line.body, place, report, consumer)
    }

    #[cold]
    fn not_json<E: From<Error>>(
        &mut self,
        line: &Line<'_>,
        error: JsonError,
        at_start: bool,
        failed: &mut Option<Malformed>,
        consumer: &mut impl Consumer<E>,
    ) -> Result<(), E> {
        if line.body.iter().all(|byte| b" \t\r".contains(byte)) {
            self.report.blank += 1;
            self.report.blank_bytes += line.size;
            self.at_start = at_start;
            return Ok(());
        }
        let reason = reason(self.decoder.tape(), line.body, error);
        if at_start && reason == "cut off" && line.ended && document::begins(line.body) {
            self.held = Some(Held::new(line));
            return Ok(());
        }
        self.rows = self.rows || at_start && self.begins_rows(line.body, consumer);
        self.malformed(line, reason, failed, consumer)?;
        let mut found = salvage::find(self.decoder.tape(), line.body, &|value| {
            consumer.is_record(value)
        });
        if found.is_empty() && self.rows {
            found = self.row(line.body, consumer);
        }
        for (start, end) in found {
            let raw = &line.body[start..end];
            let text = String::from_utf8_lossy(raw);
            let lossy = matches!(text, Cow::Owned(_));
            let Ok(doc) = self.decoder.tape().parse_lax(text.as_bytes()) else {
                continue; // can't be: this is what `find` has parsed
            };
            self.report.salvaged += 1;
            self.report.lossy += u64::from(lossy);
            let record = Record {
                json: doc,
                raw,
                line: line.number,
                offset: line.offset + start as u64,
                share: 0,
                lossy,
                salvaged: true,
                kind: string_at(doc.root(), "type"),
            };
            consumer.record(record, &mut self.report)?;
        }
        Ok(())
    }

    /// The place of the element of an array that has this line for itself.
    fn row<E>(&mut self, body: &[u8], consumer: &impl Consumer<E>) -> Vec<(usize, usize)> {
        let Some((at, end)) = document::element(body) else {
            return Vec::new();
        };
        let mut found = salvage::find(self.decoder.tape(), &body[at..end], &|value| {
            consumer.is_record(value)
        });
        for (start, end) in &mut found {
            *start += at;
            *end += at;
        }
        found
    }

    fn begins_rows<E>(&mut self, body: &[u8], consumer: &impl Consumer<E>) -> bool {
        document::ends_in_comma(body) && !self.row(body, consumer).is_empty()
    }

    // The document rule:

    /// Takes the next line while there are lines held.
    #[cold]
    fn hold<E: From<Error>>(
        &mut self,
        line: &Line<'_>,
        failed: &mut Option<Malformed>,
        consumer: &mut impl Consumer<E>,
    ) -> Result<(), E> {
        let Reader { decoder, held, .. } = self;
        let limit = self.options.max_line_bytes.min(MAX_TEXT_BYTES);
        match held {
            Some(held) if held.may_go_on(line, limit, decoder.tape()) => held.push(line),
            _ => {
                self.release(failed, consumer)?;
                self.read(line, Before::Nothing, failed, consumer)?;
            }
        }
        Ok(())
    }

    /// The source is over: what is held is a document, or it is not.
    fn document<E: From<Error>>(
        &mut self,
        failed: &mut Option<Malformed>,
        consumer: &mut impl Consumer<E>,
    ) -> Result<(), E> {
        let Some(held) = &mut self.held else {
            return Ok(());
        };
        let raw = held.document();
        match self.decoder.tape().parse(raw.text) {
            Ok(doc) if doc.root().is_object() && consumer.is_document(doc.root()) => {
                let record = Record {
                    json: doc,
                    raw: raw.text,
                    line: raw.line,
                    offset: raw.offset,
                    share: raw.share,
                    lossy: false,
                    salvaged: false,
                    kind: string_at(doc.root(), "type"),
                };
                self.report.records += 1;
                consumer.record(record, &mut self.report)?;
                held.keep_what_follows();
            }
            Ok(doc) if first_of(doc).is_some_and(|first| consumer.is_record(first)) => {
                let place = Place {
                    line: raw.line,
                    offset: raw.offset,
                    size: raw.share,
                };
                self.report.records += 1;
                elements(doc, raw.text, place, &mut self.report, consumer)?;
                held.keep_what_follows();
            }
            _ => {}
        }
        self.release(failed, consumer)
    }

    /// Reads the lines that are held like any others.
    fn release<E: From<Error>>(
        &mut self,
        failed: &mut Option<Malformed>,
        consumer: &mut impl Consumer<E>,
    ) -> Result<(), E> {
        let Some(held) = self.held.take() else {
            return Ok(());
        };
        if let Some(element) = held.first_element() {
            self.rows = self.begins_rows(element, consumer);
        }
        for line in held.lines() {
            self.read(&line, Before::Nothing, failed, consumer)?;
        }
        Ok(())
    }

    #[cold]
    fn malformed<E: From<Error>>(
        &mut self,
        line: &Line<'_>,
        reason: &'static str,
        failed: &mut Option<Malformed>,
        consumer: &mut impl Consumer<E>,
    ) -> Result<(), E> {
        self.report.truncated |= !line.ended;
        let malformed = self.report.malformed_line(line, reason);
        consumer.malformed(&malformed)?;
        if self.options.strict {
            *failed = Some(malformed.clone());
            return Err(Error::Malformed(malformed).into());
        }
        Ok(())
    }
}

/// The first element of an array, if it is an object.
fn first_of(doc: Doc<'_>) -> Option<Value<'_>> {
    let root = doc.root();
    let first = root.is_array().then(|| root.items().next());
    first.flatten().filter(Value::is_object)
}

/// An array of records stands for its elements; they share out its bytes among them.
fn elements<E>(
    doc: Doc<'_>,
    text: &[u8],
    place: Place,
    report: &mut Report,
    consumer: &mut impl Consumer<E>,
) -> Result<(), E> {
    let (mut line, mut taken, mut counted) = (place.line, 0, 0);
    let mut items = doc.root().items().peekable();
    while let Some(value) = items.next() {
        let raw = value.raw();
        let start = raw.as_ptr() as usize - text.as_ptr() as usize;
        let upto = match items.peek() {
            Some(_) => (start + raw.len()) as u64,
            None => place.size,
        };
        let share = upto - std::mem::replace(&mut taken, upto);
        let before = &text[std::mem::replace(&mut counted, start)..start];
        line += memchr_iter(b'\n', before).count() as u64;
        if !value.is_object() {
            report.ignore_bytes(share, NOT_AN_OBJECT);
            continue;
        }
        let record = Record {
            json: doc.part(value),
            raw,
            line,
            offset: place.offset + start as u64,
            share,
            lossy: false,
            salvaged: false,
            kind: string_at(value, "type"),
        };
        consumer.record(record, report)?;
    }
    Ok(())
}

/// Why a text is not JSON, in the few words of the report. When several fit, the first is given; all but the first tell
/// the first fault met when reading from the left:
///
/// - `"invalid UTF-8"`: the text is not UTF-8. A multi-byte character that the end of the text cuts is not this fault
///   when the text before it is cut off anyway.
/// - `"too deep"`: a bracket opens the 1,025th level.
/// - `"cut off"`: the text ends before its value does, or is empty.
/// - `"not JSON"`: anything else.
///
/// (`"line too long"`, the fifth, is about lines and found before any decoding.)
pub fn reason(tape: &mut Tape, text: &[u8], error: JsonError) -> &'static str {
    match error.reason {
        Reason::InvalidUtf8 => {
            let (cut, rest) = text.split_at(error.offset);
            match std::str::from_utf8(rest) {
                Err(error) if error.error_len().is_none() => {}
                _ => return "invalid UTF-8",
            }
            match tape.parse(cut) {
                Err(error) if error.reason == Reason::UnexpectedEnd => "cut off",
                _ => "invalid UTF-8",
            }
        }
        Reason::TooDeep => "too deep",
        Reason::UnexpectedEnd => "cut off",
        _ => "not JSON",
    }
}

#[cfg(test)]
mod tests;
