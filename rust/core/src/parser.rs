//! The push parser: bytes in, events out, with the run and the report at any moment.

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::Data;
use crate::detect::{Detection, Detector};
use crate::dialect::{self, BoxedMapper, Dialect, Outcome};
use crate::emit::{Emitter, Memory};
use crate::event::{Event, Kinds, Sink};
use crate::json::{Decoded, Tape, Value};
use crate::record::{Consumer, Error, Intake, Options, Record};
use crate::report::{Malformed, Report};
use crate::run::{Exit, Known, Reducer, ResultLimit};

/// Takes what comes out of a stream besides the run.
pub trait Output: Sink {
    /// A record, before its events; called if the parser was told to.
    fn record(&mut self, _record: &Record<'_>) {}

    /// A malformed line, before what is salvaged from it.
    fn malformed(&mut self, _line: &Malformed) {}
}

/// Nothing but the run and the report is wanted.
pub struct NoOutput;

impl Sink for NoOutput {
    fn take(&mut self, _event: &Event<'_>) {}
}

impl Output for NoOutput {}

/// One stream from bytes to events and run.
#[derive(Deserialize, Serialize)]
pub struct Parser {
    intake: Intake,
    stream: Stream,
}

/// What is known of the stream behind the intake.
#[derive(Deserialize, Serialize)]
struct Stream {
    kinds: Kinds,
    /// Whether the output gets the records too.
    records: bool,
    /// Whether each event is to say where its record stands.
    spans: bool,
    detector: Detector,
    detection: Option<Detection>,
    /// Records that wait until the dialect is known.
    waiting: Vec<Waiting>,
    mapping: Option<Mapping>,
    reducer: Reducer,
    /// The malformed lines since the last record.
    tail: Vec<Malformed>,
    closed: bool,
}

/// Lines of text after the last record that a mapper may look at.
const MAX_TAIL: usize = 100;

struct Mapping {
    mapper: BoxedMapper,
    memory: Memory,
}

impl Serialize for Mapping {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mapper = self.mapper.save().map_err(S::Error::custom)?;
        (&self.memory, mapper).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Mapping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (memory, mapper) = <(Memory, Vec<u8>)>::deserialize(deserializer)?;
        let mapper = (memory.dialect.mapper.load)(&mapper).map_err(D::Error::custom)?;
        Ok(Mapping { mapper, memory })
    }
}

/// A record kept for later.
#[derive(Deserialize, Serialize)]
struct Waiting {
    raw: Vec<u8>,
    line: u64,
    offset: u64,
    share: u64,
    lossy: bool,
    salvaged: bool,
}

impl Parser {
    /// `dialect`: None to find it. `kinds`: the events that the output gets.
    pub fn new(dialect: Option<&'static Dialect>, kinds: Kinds, options: Options) -> Self {
        let mut stream = Stream {
            kinds,
            records: false,
            spans: false,
            detector: Detector::default(),
            detection: None,
            waiting: Vec::new(),
            mapping: None,
            reducer: Reducer::default(),
            tail: Vec::new(),
            closed: false,
        };
        if let Some(dialect) = dialect {
            stream.decide(Detection::given(dialect));
        }
        Parser {
            intake: Intake::new(options),
            stream,
        }
    }

    /// Whoever shows the events shows where their records stand, too: see [`Event::place`].
    pub fn with_spans(mut self) -> Self {
        self.stream.spans = true;
        self
    }

    pub fn has_spans(&self) -> bool {
        self.stream.spans
    }

    /// The run keeps no more of each tool result.
    pub fn with_result_limit(mut self, limit: ResultLimit) -> Self {
        self.stream.reducer.limit_results(limit);
        self
    }

    /// From now on the output gets each record too, before its events.
    pub fn with_records(mut self) -> Self {
        self.stream.records = true;
        self
    }

    /// See [`Intake::without_templates`].
    pub fn without_templates(mut self) -> Self {
        self.intake = self.intake.without_templates();
        self
    }

    pub fn report(&self) -> &Report {
        self.intake.report()
    }

    pub fn detection(&self) -> Option<&Detection> {
        self.stream.detection.as_ref()
    }

    /// Takes the next bytes; the output gets the events of the lines that they complete.
    pub fn feed(&mut self, chunk: &[u8], output: &mut dyn Output) -> Result<(), Error> {
        let mut line = Line {
            stream: &mut self.stream,
            output,
        };
        self.intake.feed(chunk, &mut line)
    }

    /// As [`feed`](Parser::feed), of what was decoded before: see [`Intake::feed_decoded`].
    pub fn feed_decoded(
        &mut self,
        piece: &Decoded,
        from: usize,
        about: usize,
        output: &mut dyn Output,
    ) -> Result<Option<usize>, Error> {
        let mut line = Line {
            stream: &mut self.stream,
            output,
        };
        self.intake.feed_decoded(piece, from, about, &mut line)
    }

    /// The stream is over: an unfinished last line counts now.
    pub fn close(&mut self, output: &mut dyn Output) -> Result<(), Error> {
        if std::mem::replace(&mut self.stream.closed, true) {
            return Ok(());
        }
        let mut line = Line {
            stream: &mut self.stream,
            output,
        };
        self.intake.close::<Error>(&mut line)?;
        let report = self.intake.report_mut();
        if self.stream.mapping.is_none() {
            let detector = &self.stream.detector;
            let best = detector.best();
            let best = best.or_else(|| detector.by_text(&self.stream.tail));
            self.stream.settle(best, report, output);
        }
        let Stream {
            mapping,
            reducer,
            kinds,
            tail,
            ..
        } = &mut self.stream;
        if let Some(Mapping { mapper, memory }) = mapping {
            let last = memory.place();
            let mut tee = Tee {
                reducer,
                kinds: *kinds,
                output,
                told: false,
            };
            if let Some(first) = tail.first() {
                let lines: Vec<&str> = tail.iter().map(|line| line.text.as_str()).collect();
                let mut emitter = Emitter::new(memory, &mut tee, first.place());
                mapper.tail(&lines, &mut emitter);
            }
            let mut emitter = Emitter::new(memory, &mut tee, last);
            mapper.close(&mut emitter);
            emitter.finish();
            if emitter.is_lossy() {
                report.lossy_record();
            }
        }
        Ok(())
    }

    /// How many bytes were fed.
    pub fn offset(&self) -> u64 {
        self.intake.fed()
    }

    /// All that the parser knows, the bytes of an unfinished last line included; for [`restore`](Parser::restore).
    ///
    /// The encoding is that of this version alone, and says so nowhere: whoever keeps it must note the version.
    pub fn snapshot(&mut self) -> postcard::Result<Vec<u8>> {
        if let Some(Mapping { memory, .. }) = &self.stream.mapping {
            self.stream.reducer.make_room(memory.counts());
        }
        postcard::to_stdvec(self)
    }

    /// The parser that a snapshot was made of; it goes on with the byte at its [`offset`](Parser::offset). None for bytes
    /// that no parser of this version gave: nothing that they say can make it panic or allocate more than they hold.
    pub fn restore(snapshot: &[u8]) -> Option<Parser> {
        let (parser, rest) = postcard::take_from_bytes::<Parser>(snapshot).ok()?;
        let Parser { intake, stream } = &parser;
        let known = stream.mapping.as_ref();
        let sound = intake.is_sound()
            && stream.reducer.is_sound()
            && known.is_none_or(|known| known.memory.is_sound(stream.reducer.room()));
        (sound && rest.is_empty()).then_some(parser)
    }

    /// What the stream said last of how it ends; see [`crate::run::Progress::word`].
    pub fn ending(&self) -> Option<&'static str> {
        self.stream.reducer.progress.word()
    }

    /// The run so far, as `Run.to_dict()` has it.
    pub fn run<'p>(&'p self, exit: &'p Exit) -> Data<'p> {
        self.tell(exit, |run, known| run.to_data(known))
    }

    /// One key of the run so far; None if runs have no such key.
    pub fn part<'p>(&'p self, key: &str, exit: &'p Exit) -> Option<Data<'p>> {
        self.tell(exit, |run, known| run.part(key, known))
    }

    fn tell<'p, T>(
        &'p self,
        exit: &'p Exit,
        tell: impl FnOnce(&'p Reducer, &Known<'p, '_>) -> T,
    ) -> T {
        let mapper = self.stream.mapping.as_ref().map(|mapping| &mapping.mapper);
        let judge = |run: &Reducer, exit: &Exit| mapper.and_then(|mapper| mapper.judge(run, exit));
        let known = Known {
            dialect: self.detection().map(|found| found.dialect.name),
            report: self.report(),
            judge: Some(&judge),
            exit,
        };
        tell(&self.stream.reducer, &known)
    }

    /// Each model call so far, as `Run.ledger` has it.
    pub fn ledger(&self) -> Data<'_> {
        self.stream.reducer.ledger()
    }

    /// The harness's own total of each model, as far as it prints them.
    pub fn printed_models(&self) -> Data<'_> {
        self.stream.reducer.printed_models()
    }
}

/// The consumer of the intake.
struct Line<'p> {
    stream: &'p mut Stream,
    output: &'p mut dyn Output,
}

impl Consumer<Error> for Line<'_> {
    #[inline]
    fn record(&mut self, record: Record<'_>, report: &mut Report) -> Result<(), Error> {
        self.stream.take(&record, report, self.output);
        Ok(())
    }

    fn malformed(&mut self, line: &Malformed) -> Result<(), Error> {
        if self.stream.tail.len() < MAX_TAIL {
            self.stream.tail.push(line.clone());
        }
        self.output.malformed(line);
        Ok(())
    }

    fn is_record(&self, value: Value<'_>) -> bool {
        dialect::is_record(value, self.stream.dialect())
    }

    fn is_document(&self, value: Value<'_>) -> bool {
        dialect::is_document(value, self.stream.dialect())
    }
}

/// Events go to the reducer first, then, if they are wanted, to the output.
struct Tee<'p> {
    reducer: &'p mut Reducer,
    kinds: Kinds,
    output: &'p mut dyn Output,
    /// An event came.
    told: bool,
}

impl Sink for Tee<'_> {
    fn take(&mut self, event: &Event<'_>) {
        self.told = true;
        self.reducer.take(event);
        if self.kinds.has(event.kind()) {
            self.output.take(event);
        }
    }
}

impl Stream {
    fn dialect(&self) -> Option<&'static Dialect> {
        self.detection.as_ref().map(|found| found.dialect)
    }

    fn take(&mut self, record: &Record<'_>, report: &mut Report, output: &mut dyn Output) {
        self.tail.clear();
        if self.mapping.is_some() {
            self.map(record, report, output);
            return;
        }
        let size = record.raw.len() as u64;
        let found = self.detector.look(record.value(), record.line, size);
        if found.is_some() || self.detector.is_full() {
            self.settle(found, report, output);
            self.map(record, report, output);
            return;
        }
        self.waiting.push(Waiting {
            raw: record.raw.to_vec(),
            line: record.line,
            offset: record.offset,
            share: record.share,
            lossy: record.lossy,
            salvaged: record.salvaged,
        });
    }

    /// Decides on a dialect, or that the records that wait are of none.
    fn settle(&mut self, found: Option<Detection>, report: &mut Report, output: &mut dyn Output) {
        if let Some(found) = found {
            self.decide(found);
        }
        let mut tape = Tape::new();
        for kept in std::mem::take(&mut self.waiting) {
            let text;
            let doc = if kept.salvaged {
                text = String::from_utf8_lossy(&kept.raw);
                tape.parse_lax(text.as_bytes())
            } else {
                tape.parse(&kept.raw)
            };
            let Ok(doc) = doc else {
                continue; // can't be: it was parsed when it came
            };
            let record = Record {
                json: doc,
                raw: &kept.raw,
                line: kept.line,
                offset: kept.offset,
                share: kept.share,
                lossy: kept.lossy,
                salvaged: kept.salvaged,
                kind: doc.root().get("type").and_then(|kind| kind.as_str()),
            };
            self.map(&record, report, output);
        }
    }

    fn decide(&mut self, found: Detection) {
        self.mapping = Some(Mapping {
            mapper: (found.dialect.mapper.new)(),
            memory: Memory::new(found.dialect),
        });
        self.detection = Some(found);
    }

    fn map(&mut self, record: &Record<'_>, report: &mut Report, output: &mut dyn Output) {
        if self.records {
            output.record(record);
        }
        let Some(Mapping { mapper, memory }) = &mut self.mapping else {
            let kind = record.native_type();
            report.unknown_type(record, kind.map(|kind| kind.lossy()).as_deref());
            return;
        };
        let mut tee = Tee {
            reducer: &mut self.reducer,
            kinds: self.kinds,
            output,
            told: false,
        };
        let mut emitter = Emitter::new(memory, &mut tee, record.place());
        let outcome = mapper.map(record, &mut emitter);
        if emitter.is_lossy() && !record.lossy {
            report.lossy_record(); // the intake has counted the others
        }
        match outcome {
            Outcome::Mapped => report.event(record),
            // what it is for says nothing, but what stands around it, or that it comes now, made an event
            Outcome::Ignored(_) if tee.told => report.event(record),
            Outcome::Ignored(rule) => report.ignore(record, rule),
            Outcome::Unknown => {
                let kind = record.native_type();
                report.unknown_type(record, kind.map(|kind| kind.lossy()).as_deref());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"\xef\xbb\xbf\
        {\"type\": \"tool_call\", \"id\": \"1\", \"name\": \"execute\", \"args\": {\"command\": \"ls\"}}\n\
        oops\n\
        {\"type\": \"text\", \"content\": \"One file.\"}\n\
        {\"type\": \"done\", \"content\": \"One file.\", \"response\": \"One file.\"}\n";

    fn parser() -> Parser {
        Parser::new(None, Kinds::EVENTS, Options::default())
    }

    fn run(mut parser: Parser) -> Box<[u8]> {
        parser.close(&mut NoOutput).unwrap();
        parser.run(&Exit::default()).to_raw()
    }

    #[test]
    fn restored_after_each_byte_it_is_the_same_parser() {
        let mut whole = parser();
        whole.feed(STREAM, &mut NoOutput).unwrap();
        let mut stopped = parser();
        for (at, byte) in STREAM.iter().enumerate() {
            stopped.feed(&[*byte], &mut NoOutput).unwrap();
            let snapshot = stopped.snapshot().unwrap();
            stopped = Parser::restore(&snapshot).unwrap();
            assert_eq!(stopped.offset(), at as u64 + 1);
            assert!(Parser::restore(&snapshot[..snapshot.len() - 1]).is_none());
        }
        assert_eq!(run(stopped), run(whole));
    }
}
