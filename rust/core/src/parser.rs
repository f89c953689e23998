//! The push parser: bytes in, events out, with the run and the report at any moment.

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::Data;
use crate::detect::{Detection, Detector};
use crate::dialect::{self, BoxedMapper, Dialect, Outcome};
use crate::emit::{BlockAt, Emitter, Memory};
use crate::event::{Chunk, Content, Event, Kind, Kinds, Place, Sink, Stamp, Update};
use crate::json::{Decoded, Expected, Forms, Head, Row, Tape, Value};
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
    /// What the last record said, if the next ones may go on with it.
    #[serde(skip)]
    flow: Option<Flow>,
    #[serde(skip)]
    series: Expected,
    /// The malformed lines since the last record.
    tail: Vec<Malformed>,
    closed: bool,
}

/// Whether events that come in series are among them.
fn has_texts(kinds: Kinds) -> bool {
    kinds.has(Kind::Message) || kinds.has(Kind::Thought)
}

/// Lines of text after the last record that a mapper may look at.
const MAX_TAIL: usize = 100;

struct Mapping {
    mapper: BoxedMapper,
    memory: Memory,
    /// Of the dialect's series, once it is known who wants what.
    forms: Option<Forms>,
}

/// The text that a record of a series added to a block: it may go on without mapper, emitter and reducer.
struct Flow {
    head: Head,
    block: BlockAt,
    said: Said,
    /// Of its event, if somebody wants those that follow.
    stamp: Option<Stamp<'static>>,
}

/// Text that an event adds to a block.
#[derive(Clone, Copy)]
struct Said {
    kind: Kind,
    /// Number of the block.
    block: u32,
    /// It is of the main agent.
    is_main: bool,
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
        Ok(Mapping {
            mapper,
            memory,
            forms: None,
        })
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
            flow: None,
            series: Expected::default(),
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
        self.stream.series = Expected::default();
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
        if let Some(Mapping { mapper, memory, .. }) = mapping {
            let last = memory.place();
            let mut tee = Tee::new(reducer, *kinds, output);
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

    /// The series of the dialect as soon as it is known, if nobody wants their events one by one.
    pub fn series(&self) -> Expected {
        self.stream.series.clone()
    }

    /// Whether [`feed_decoded`](Parser::feed_decoded) may be told of rows.
    pub fn takes_rows(&self) -> bool {
        self.stream.series.get().is_some()
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
        if let Some(dialect) = stream.dialect() {
            stream.expect(dialect);
        }
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

    /// See [`Reducer::last_call_time`].
    pub fn last_call_time(&self) -> Option<&str> {
        self.stream.reducer.last_call_time()
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

    #[inline]
    fn head(&self) -> Option<(&Head, bool)> {
        let flow = self.stream.flow.as_ref()?;
        Some((&flow.head, flow.stamp.is_some()))
    }

    fn row(&mut self, row: &Row<'_>, place: Place) -> bool {
        self.stream.row(row, place, self.output)
    }

    fn malformed(&mut self, line: &Malformed) -> Result<(), Error> {
        self.stream.flow = None;
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
    /// How many events came.
    told: u32,
    /// What the last one said.
    text: Option<Said>,
    /// Whether the stamp of that is kept, if the output gets it.
    keeps: bool,
    stamp: Option<Stamp<'static>>,
}

impl<'p> Tee<'p> {
    fn new(reducer: &'p mut Reducer, kinds: Kinds, output: &'p mut dyn Output) -> Self {
        Tee {
            reducer,
            kinds,
            output,
            told: 0,
            text: None,
            keeps: false,
            stamp: None,
        }
    }
}

impl Sink for Tee<'_> {
    fn take(&mut self, event: &Event<'_>) {
        self.told += 1;
        self.text = match event.update {
            Update::Chunk(Chunk {
                kind,
                content: Content::Text(_),
                retract: 0,
                block,
            }) => {
                let is_main = event.stamp.thread().is_none();
                Some(Said {
                    kind,
                    block,
                    is_main,
                })
            }
            _ => None,
        };
        self.reducer.take(event);
        if self.kinds.has(event.kind()) {
            if self.keeps {
                self.stamp = Some(event.stamp.to_static());
            }
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

    /// Says what series there are, if nobody wants their records or events.
    fn expect(&self, dialect: &'static Dialect) {
        let is_wanted = self.records || has_texts(self.kinds);
        if !is_wanted && !dialect.series.is_empty() {
            self.series.get_or_init(|| dialect.series);
        }
    }

    fn decide(&mut self, found: Detection) {
        self.expect(found.dialect);
        let mapper = (found.dialect.mapper.new)();
        self.mapping = Some(Mapping {
            mapper,
            memory: Memory::new(found.dialect),
            forms: None,
        });
        self.detection = Some(found);
    }

    /// Takes records that say nothing but more of the text that the last one said.
    fn row(&mut self, row: &Row<'_>, place: Place, output: &mut dyn Output) -> bool {
        let (Some(flow), Some(Mapping { memory, .. })) = (&self.flow, &mut self.mapping) else {
            return false;
        };
        let Some(text) = memory
            .text_of(flow.block)
            .filter(|_| flow.head.pattern == row.pattern)
        else {
            return false;
        };
        text.push_str(row.text);
        let Said {
            kind,
            block,
            is_main,
        } = flow.said;
        self.reducer.go_on(kind, block, row.text, is_main, place);
        memory.go_to(place);
        let Some(stamp) = &flow.stamp else {
            return true;
        };
        let first = (place.line + 1 - row.count, place.offset - row.last.0);
        let mut from = 0;
        for (line, part) in (first.0..).zip(row.parts) {
            let text = &row.text[from..part.end as usize];
            from = part.end as usize;
            let chunk = Chunk {
                kind,
                content: Content::Text(text),
                retract: 0,
                block,
            };
            output.take(&Event {
                update: Update::Chunk(chunk),
                stamp,
                place: Place {
                    line,
                    offset: first.1 + u64::from(part.start),
                    size: part.size.into(),
                },
            });
        }
        true
    }

    fn map(&mut self, record: &Record<'_>, report: &mut Report, output: &mut dyn Output) {
        if self.records {
            output.record(record);
        }
        let Some(Mapping {
            mapper,
            memory,
            forms,
        }) = &mut self.mapping
        else {
            let kind = record.native_type();
            report.unknown_type(record, kind.map(|kind| kind.lossy()).as_deref());
            return;
        };
        let series = memory.dialect.series;
        let forms = forms.get_or_insert_with(|| Forms::new(series, has_texts(self.kinds)));
        let head = match self.records {
            true => None, // somebody wants them one by one
            false => forms.head(&record.json),
        };
        let mut tee = Tee::new(&mut self.reducer, self.kinds, output);
        tee.keeps = head.is_some();
        let mut emitter = Emitter::new(memory, &mut tee, record.place());
        let outcome = mapper.map(record, &mut emitter);
        if emitter.is_lossy() && !record.lossy {
            report.lossy_record(); // the intake has counted the others
        }
        let Tee {
            told, text, stamp, ..
        } = tee;
        self.flow = match (head, text) {
            (Some(head), Some(said)) if told == 1 && mapper.has_series() => {
                let block = memory.last_block(said.kind, said.block);
                block.map(|block| Flow {
                    head,
                    block,
                    said,
                    stamp,
                })
            }
            _ => None,
        };
        match outcome {
            Outcome::Mapped => report.event(record),
            // what it is for says nothing, but what stands around it, or that it comes now, made an event
            Outcome::Ignored(_) if told > 0 => report.event(record),
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
    use crate::json::{Decoded, Decoder, Stretch};

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

    /// By dialect: two kinds of delta, each with what stands before and behind its index and its text.
    const DELTAS: &[(&str, [[&str; 3]; 2])] = &[
        (
            "pi",
            [
                [
                    r#"{"type":"message_update","assistantMessageEvent":{"type":"text_delta","contentIndex":"#,
                    r#","delta":""#,
                    r#""}}"#,
                ],
                [
                    r#"{"type":"message_update","assistantMessageEvent":{"type":"thinking_delta","contentIndex":"#,
                    r#","delta":""#,
                    r#""}}"#,
                ],
            ],
        ),
        (
            "claude",
            [
                [
                    r#"{"type":"stream_event","event":{"type":"content_block_delta","index":"#,
                    r#","delta":{"type":"text_delta","text":""#,
                    r#""}},"session_id":"s","parent_tool_use_id":null,"api_message_id":"m"}"#,
                ],
                [
                    r#"{"type":"stream_event","event":{"type":"content_block_delta","index":"#,
                    r#","delta":{"type":"text_delta","text":""#,
                    r#""}},"session_id":"s","parent_tool_use_id":"c","api_message_id":"m"}"#,
                ],
            ],
        ),
        (
            "qwen",
            [
                [
                    r#"{"type":"stream_event","parent_tool_use_id":null,"event":{"type":"content_block_delta","index":"#,
                    r#","delta":{"type":"text_delta","text":""#,
                    r#""}}}"#,
                ],
                [
                    r#"{"type":"stream_event","parent_tool_use_id":"c","event":{"type":"content_block_delta","index":"#,
                    r#","delta":{"type":"thinking_delta","thinking":""#,
                    r#""}}}"#,
                ],
            ],
        ),
        (
            "acp",
            [
                [
                    r#"{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","messageId":"m"#,
                    r#"","content":{"type":"text","text":""#,
                    r#""}},"sessionId":"s"}}"#,
                ],
                [
                    r#"{"method":"session/update","params":{"update":{"sessionUpdate":"agent_thought_chunk","_meta":{"n":"#,
                    r#"},"content":{"type":"text","text":""#,
                    r#""}},"sessionId":"s"}}"#,
                ],
            ],
        ),
        (
            "gemini",
            [
                [
                    r#"{"type":"message","timestamp":"2026-01-01T00:0"#,
                    r#":00Z","role":"assistant","content":""#,
                    r#"","delta":true}"#,
                ],
                [
                    r#"{"type":"message","timestamp":"2026-01-01T00:0"#,
                    r#":00Z","role":"system","content":""#,
                    r#"","delta":true}"#,
                ],
            ],
        ),
        (
            "copilot",
            [
                [
                    r#"{"type":"assistant.message_delta","parentId":null,"data":{"messageId":"m"#,
                    r#"","deltaContent":""#,
                    r#""}}"#,
                ],
                [
                    r#"{"type":"assistant.reasoning_delta","parentId":null,"data":{"reasoningId":"m"#,
                    r#"","deltaContent":""#,
                    r#""},"agentId":"a"}"#,
                ],
            ],
        ),
        (
            "evosci",
            [
                [r#"{"type":"text","id":"#, r#","content":""#, r#""}"#],
                [r#"{"type":"thinking","id":"#, r#","content":""#, r#""}"#],
            ],
        ),
        (
            "minicode",
            [
                [
                    r#"{"type":"reasoning.delta","sessionId":"s","eventSeq":"#,
                    r#","payload":{"delta":""#,
                    r#""}}"#,
                ],
                [
                    r#"{"type":"reasoning.delta","sessionId":"s","payload":{"parentToolCallId":"c"#,
                    r#"","delta":""#,
                    r#""}}"#,
                ],
            ],
        ),
        (
            "droid",
            [
                [
                    r#"{"method":"droid.session_notification","params":{"notification":{"type":"assistant_text_delta","blockIndex":"#,
                    r#","textDelta":""#,
                    r#""}}}"#,
                ],
                [
                    r#"{"method":"droid.session_notification","params":{"notification":{"type":"thinking_text_delta","messageId":"m"#,
                    r#"","textDelta":""#,
                    r#""}}}"#,
                ],
            ],
        ),
        (
            "kimi-wire",
            [
                [
                    r#"{"method":"event","id":"#,
                    r#","params":{"type":"ContentPart","payload":{"type":"text","text":""#,
                    r#""}}}"#,
                ],
                [
                    r#"{"method":"event","id":"#,
                    r#","params":{"type":"ContentPart","payload":{"type":"think","think":""#,
                    r#""}}}"#,
                ],
            ],
        ),
        (
            "codex",
            [
                [
                    r#"{"id":"1","msg":{"type":"agent_message_delta","item_id":"i"#,
                    r#"","delta":""#,
                    r#""}}"#,
                ],
                [
                    r#"{"id":"1","msg":{"type":"agent_reasoning_delta","item_id":"i"#,
                    r#"","delta":""#,
                    r#""}}"#,
                ],
            ],
        ),
        (
            "codex-appserver",
            [
                [
                    r#"{"method":"item/agentMessage/delta","params":{"threadId":"t","itemId":"i"#,
                    r#"","delta":""#,
                    r#""}}"#,
                ],
                [
                    r#"{"method":"item/reasoning/summaryTextDelta","params":{"itemId":"i","summaryIndex":"#,
                    r#","delta":""#,
                    r#""}}"#,
                ],
            ],
        ),
        // v1
        (
            "codex-appserver",
            [
                [
                    r#"{"method":"codex/event","params":{"msg":{"type":"agent_message_delta","item_id":"i"#,
                    r#"","delta":""#,
                    r#""}}}"#,
                ],
                [
                    r#"{"method":"codex/event/agent_reasoning_delta","params":{"msg":{"type":"agent_reasoning_delta","item_id":"i"#,
                    r#"","delta":""#,
                    r#""}}}"#,
                ],
            ],
        ),
        (
            "evolve",
            [
                [
                    r#"{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","n":"#,
                    r#","text":""#,
                    r#""}},"sessionId":"s"}"#,
                ],
                [
                    r#"{"update":{"sessionUpdate":"agent_thought_chunk"},"messageId":"m"#,
                    r#"","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":""#,
                    r#""}}}"#,
                ],
            ],
        ),
    ];

    /// Deltas of which most go on with the one before, in an order that the seed tells.
    fn deltas(ends: &[[&str; 3]; 2], mut seed: u64) -> Vec<u8> {
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % bound
        };
        let texts = [
            "a",
            " word",
            "\\n",
            "é",
            "\\ud83d\\ude00",
            "one \\\"two\\\"",
        ];
        let odd = ["", "\\ud83d", "\\ude00"];
        let mut stream = String::new();
        let (mut index, mut which) = (0, 0);
        for _ in 0..400 {
            match below(12) {
                0 => index = below(3),
                1 => which = below(2) as usize,
                2 => stream
                    .push_str(["oops\n", "\n", "[1]\n", "{\"type\":\"x\"}\n"][below(4) as usize]),
                _ => {}
            }
            let text = match below(20) {
                0 => odd[below(3) as usize],
                _ => texts[below(6) as usize],
            };
            let [before, between, behind] = ends[which];
            let end = ["\n", "\n", "\r\n"][below(3) as usize];
            stream.extend([before, &index.to_string(), between, text, behind, end]);
        }
        stream.into_bytes()
    }

    /// The run and the report of a stream in pieces that were decoded before; how many rows were among them.
    fn decoded(stream: &[u8], dialect: &'static Dialect, size: usize) -> (String, usize) {
        let mut parser = Parser::new(Some(dialect), Kinds::NONE, Options::default());
        let (mut decoder, mut piece) = (Decoder::new(), Decoded::default());
        let mut forms = parser
            .series()
            .get()
            .map(|series| Forms::new(series, false));
        let mut rows = 0;
        for chunk in stream.chunks(size) {
            piece.room().splice(..0, chunk.iter().copied());
            piece.decode(chunk.len(), &mut decoder, forms.as_mut());
            let stretches = piece.stretches(0);
            rows += stretches.filter(|it| matches!(it, Stretch::Row(_))).count();
            parser
                .feed_decoded(&piece, 0, usize::MAX, &mut NoOutput)
                .unwrap();
        }
        (told(parser), rows)
    }

    /// All events.
    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Sink for Heard {
        fn take(&mut self, event: &Event<'_>) {
            self.0.push(format!("{event:?}"));
        }
    }

    impl Output for Heard {}

    fn told(mut parser: Parser) -> String {
        parser.close(&mut NoOutput).unwrap();
        let run = parser.run(&Exit::default()).to_raw();
        format!("{:?} {}", parser.report(), String::from_utf8_lossy(&run))
    }

    #[test]
    fn a_row_says_what_its_records_say() {
        for (name, ends) in DELTAS {
            let dialect = dialect::named(name).unwrap();
            let parser = |kinds| Parser::new(Some(dialect), kinds, Options::default());
            for seed in 0..40 {
                let stream = deltas(ends, seed);
                let mut one_by_one = parser(Kinds::EVENTS).without_templates();
                let (mut heard, mut also) = (Heard::default(), Heard::default());
                one_by_one.feed(&stream, &mut heard).unwrap();
                let want = told(one_by_one);
                let mut with_events = parser(Kinds::EVENTS);
                with_events.feed(&stream, &mut also).unwrap();
                assert!(also.0 == heard.0, "events of {name} {seed}");
                assert!(told(with_events) == want, "{name} {seed}");
                let mut in_rows = parser(Kinds::NONE);
                in_rows.feed(&stream, &mut NoOutput).unwrap();
                assert!(told(in_rows) == want, "{name} {seed}");
                for size in [700, 5_000, usize::MAX] {
                    let (told, rows) = decoded(&stream, dialect, size);
                    assert!(told == want, "{name} {seed} in pieces of {size}");
                    assert!(rows > 10);
                }
            }
        }
    }
}
