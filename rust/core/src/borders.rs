//! Where one run of a source ends and the next one begins.
//!
//! What the records of each dialect show of it is in [`rule_of`]. Besides, a record of another dialect is never of the
//! run that is read. Nothing is decided on a guess: a border that the wire does not show is none.

use crate::detect::{Detection, Detector, WINDOW_RECORDS};
use crate::dialect::{self, Dialect};
use crate::json::{Text, Value};
use crate::record::{Consumer, Error, Intake, Options, Record};
use crate::report::Report;

/// Line, from 1, and byte offset.
pub type Place = (u64, u64);

/// A dotted path, and the text (or integer) that stands there; `abc*` and `*abc` are its beginning and its end, None is
/// anything but null.
type Mark = (&'static str, Option<&'static str>);

/// Confidence that makes a border of what no later record has spoken against.
const STRONG: f64 = 0.5;

/// What shows the sessions of a dialect.
#[derive(Clone, Copy)]
struct Rule {
    /// Where the session's id stands, on records that only the session itself has: a path, or the type of the record
    /// (`-`: none) and a path.
    ids: &'static [&'static str],
    /// The same where other sessions' ids (sub-agents', other conversations') may stand too: they only tell the session
    /// that a herald has opened.
    names: &'static [&'static str],
    /// Records that only a session's beginning has.
    starts: &'static [Mark],
    /// The first record of a process, which does not say yet whether it resumes the session.
    heralds: &'static [Mark],
    /// Other records at a beginning; a start right behind such records is no other one.
    opening: &'static [Mark],
    /// The record after which the session says nothing more.
    ends: &'static [Mark],
    /// The session's first record has its id; a run that has shown none is another one.
    first: bool,
    /// Another dialect whose records it has too.
    holds: Option<&'static str>,
}

const NO_RULE: Rule = Rule {
    ids: &[],
    names: &[],
    starts: &[],
    heralds: &[],
    opening: &[],
    ends: &[],
    first: false,
    holds: None,
};

// how servers of JSON-RPC answer `initialize`: each is a stranger to the other
const ACP_AGENT: &[Mark] = &[("result.agentCapabilities", None)];
const CODEX_SERVER: &[Mark] = &[("result.userAgent", None), ("result.serverInfo", None)];
const KIMI: &[Mark] = &[
    ("type", Some("system.version")),
    ("role", Some("_system_prompt")),
    ("id", Some("0")),
];

/// A rule by the ids that records have.
const fn by(ids: &'static [&'static str]) -> Rule {
    Rule { ids, ..NO_RULE }
}

fn rule_of(dialect: Option<&Dialect>) -> Rule {
    let Some(dialect) = dialect else {
        return NO_RULE;
    };
    match dialect.name {
        "acp" => Rule {
            names: &["result.sessionId", "params.sessionId"],
            starts: CODEX_SERVER,
            heralds: ACP_AGENT,
            ..NO_RULE
        },
        "claude" => Rule {
            heralds: &[("response.response.commands", None)],
            ..by(&["session_id", "response.response.session_id"])
        },
        "claude-transcript" | "gemini-chat" | "qwen-chat" => by(&["sessionId"]),
        "codex" => Rule {
            starts: &[("workdir", None)],
            first: true,
            ..by(&["thread_id", "session_id"])
        },
        "codex-appserver" => Rule {
            names: &[
                "result.thread.id",
                "result.conversationId",
                "params.threadId",
                "params.conversationId",
                "params.msg.session_id",
            ],
            starts: ACP_AGENT,
            heralds: CODEX_SERVER,
            ..NO_RULE
        },
        "codex-rollout" => Rule {
            opening: &[("type", Some("session_meta"))],
            ..by(&["session_meta payload.id", "- id"])
        },
        "copilot" => Rule {
            starts: &[("type", Some("session.skills_loaded"))],
            opening: &[("type", Some("session.*"))],
            ends: &[("type", Some("result"))],
            ..NO_RULE
        },
        "copilot-session" => by(&["session.start data.sessionId"]),
        "droid" | "gemini" => by(&["session_id"]),
        "droid-session" => by(&["session_start id"]),
        "evosci" => Rule {
            ends: &[("type", Some("done")), ("type", Some("error"))],
            ..NO_RULE
        },
        "kimi" => Rule {
            starts: KIMI,
            ends: &[("type", Some("session.resume_hint"))],
            holds: Some("kimi-context"),
            ..NO_RULE
        },
        "kimi-context" => Rule {
            starts: KIMI,
            holds: Some("kimi"),
            ..NO_RULE
        },
        "kimi-wire" => Rule {
            starts: &[("protocol_version", None)],
            ..NO_RULE
        },
        "minicode" => Rule {
            starts: &[("eventId", Some("*:1:1"))],
            ends: &[("type", Some("summary"))],
            ..NO_RULE
        },
        "opencode" => by(&["sessionID"]),
        "opencode-export" => Rule {
            starts: &[("table", Some("project"))],
            ..by(&["info.id"])
        },
        "pi" => Rule {
            first: true,
            ..by(&["session id"])
        },
        "pi-session" => by(&["session id"]),
        "qwen" => by(&["session_id", "response.response.session_id"]),
        _ => NO_RULE,
    }
}

/// Bytes in, the places at which another run begins out.
pub struct Borders {
    intake: Intake,
    reader: Reader,
}

/// What is known behind the intake.
struct Reader {
    given: Option<&'static Dialect>,
    out: Vec<Place>,
    /// Where a process begins, of which session is not known yet.
    herald: Option<Place>,
    /// Records since then.
    since: u64,
    /// Line of the last record.
    line: u64,
    run: Run,
}

/// What is known of the run that is read.
struct Run {
    dialect: Option<&'static Dialect>,
    sure: bool,
    detector: Detector,
    session: Option<String>,
    /// The records that opened it.
    first: Vec<u8>,
    /// There was nothing but what opens a session.
    fresh: bool,
    ended: bool,
    /// By which it began.
    start_mark: Option<Mark>,
    /// The first of the last records that look like another dialect's.
    stranger: Option<Place>,
    strangers: Detector,
    /// The session that they name.
    named: Option<String>,
}

impl Run {
    fn new(dialect: Option<&'static Dialect>) -> Self {
        Run {
            dialect,
            sure: dialect.is_some(),
            detector: Detector::default(),
            session: None,
            first: Vec::new(),
            fresh: true,
            ended: false,
            start_mark: None,
            stranger: None,
            strangers: Detector::default(),
            named: None,
        }
    }
}

impl Borders {
    /// `dialect`: that of all runs, or None to find them. Lines that are longer than the limit are passed over.
    pub fn new(dialect: Option<&'static Dialect>, max_line_bytes: u64) -> Self {
        let options = Options {
            strict: false,
            max_line_bytes,
        };
        Borders {
            intake: Intake::new(options),
            reader: Reader {
                given: dialect,
                out: Vec::new(),
                herald: None,
                since: 0,
                line: 0,
                run: Run::new(dialect),
            },
        }
    }

    /// The borders that the lines in these bytes show.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<Vec<Place>, Error> {
        self.intake.feed::<Error>(chunk, &mut self.reader)?;
        Ok(std::mem::take(&mut self.reader.out))
    }

    /// The borders that only the end of the source shows.
    pub fn close(&mut self) -> Result<Vec<Place>, Error> {
        self.intake.close::<Error>(&mut self.reader)?;
        if let Some(place) = self.reader.herald {
            self.reader.cut(place, None);
        }
        self.reader.cut_strangers();
        Ok(std::mem::take(&mut self.reader.out))
    }

    /// The offset before which no more border can come to be.
    pub fn certain(&self) -> u64 {
        let places = [self.reader.herald, self.reader.run.stranger];
        let places = places.into_iter().flatten().map(|(_, offset)| offset);
        places.fold(self.intake.report().bytes(), u64::min)
    }
}

impl Consumer<Error> for Reader {
    fn record(&mut self, record: Record<'_>, report: &mut Report) -> Result<(), Error> {
        // the line before the record begins where the account stands, if the record is not from a damaged line
        let offset = match record.salvaged {
            true => record.offset,
            false => report.bytes(),
        };
        report.event(&record);
        if record.line == self.line && !record.salvaged {
            return Ok(()); // of one JSON array
        }
        self.line = record.line;
        self.take(&record, (record.line, offset));
        Ok(())
    }

    fn is_record(&self, value: Value<'_>) -> bool {
        dialect::is_record(value, self.run.dialect)
    }

    fn is_document(&self, value: Value<'_>) -> bool {
        dialect::is_document(value, self.run.dialect)
    }
}

impl Reader {
    fn take(&mut self, record: &Record<'_>, place: Place) {
        if self.run.ended || self.opens(record.value()) {
            self.cut_strangers();
            self.cut(self.run.stranger.unwrap_or(place), None);
        }
        let known = self.know(record, place);
        self.note(record, place, known);
    }

    /// Whether another session of the dialect begins here.
    fn opens(&mut self, value: Value<'_>) -> bool {
        let rule = rule_of(self.run.dialect);
        let start = any(rule.starts, value);
        if start.is_some() && (!self.run.fresh || start == self.run.start_mark) {
            return true;
        }
        let own = id_of(rule.ids, value);
        if let Some(herald) = self.herald {
            let named = own.or_else(|| id_of(rule.names, value));
            self.since += 1;
            if named.is_some() && named.as_deref() == self.run.session.as_deref() {
                self.herald = None; // it was resumed
            } else if named.is_some() || self.since > WINDOW_RECORDS {
                self.cut_there(herald);
            }
            return false;
        }
        let run = &self.run;
        let Some(own) = own else { return false };
        match run.session.as_deref() {
            None => rule.first && !run.fresh,
            Some(session) if *own == *session => false,
            // a fork's header names the session whose header and history it copies
            Some(_) => !(run.fresh && contains(&run.first, own.as_bytes())),
        }
    }

    /// Looks at what dialect the record is; whether it is one of the run's.
    fn know(&mut self, record: &Record<'_>, place: Place) -> bool {
        let (value, size) = (record.value(), record.raw.len() as u64);
        let run = &mut self.run;
        if !run.sure {
            let found = run.detector.look(value, record.line, size);
            run.sure = found.is_some() || run.detector.is_full();
            run.dialect = found
                .or_else(|| run.detector.best())
                .map(|best| best.dialect);
            return run.dialect.is_some();
        }
        let own = run.dialect.and_then(|dialect| (dialect.sign)(value));
        if own.is_some_and(|sign| sign.weight > 0) {
            run.stranger = None;
            return true;
        }
        if self.given.is_some() {
            return false;
        }
        if run.stranger.is_none() {
            run.strangers = Detector::default();
            run.named = None;
        }
        let found = run.strangers.look(value, record.line, size);
        let sure = found.is_some();
        let Some(best) = found.or_else(|| run.strangers.best()) else {
            run.stranger = None;
            return false;
        };
        let name = Some(best.dialect.name);
        if name == run.dialect.map(|dialect| dialect.name) || name == rule_of(run.dialect).holds {
            run.stranger = None;
            return true;
        }
        let stranger = *run.stranger.get_or_insert(place);
        if run.named.is_none() {
            let ids = rule_of(Some(best.dialect)).ids;
            run.named = id_of(ids, value).map(Text::into_string);
        }
        if sure {
            self.cut(stranger, Some(best));
            self.run.fresh = stranger == place;
        }
        sure
    }

    /// Keeps what the record says of its session.
    fn note(&mut self, record: &Record<'_>, place: Place, known: bool) {
        let rule = rule_of(self.run.dialect);
        let value = record.value();
        if self.run.session.is_none() {
            let id = id_of(rule.ids, value).or_else(|| id_of(rule.names, value));
            self.run.session = id.map(Text::into_string);
        }
        if self.run.fresh {
            self.run.first.extend_from_slice(record.raw);
        }
        let herald = any(rule.heralds, value);
        if herald.is_some() && (!self.run.fresh || herald == self.run.start_mark) {
            if let Some(herald) = self.herald {
                self.cut_there(herald);
            }
            self.herald = Some(place);
            self.since = 0;
        }
        let start = herald.or_else(|| any(rule.starts, value));
        if self.run.fresh && start.is_some() {
            self.run.start_mark = start;
        } else if known && any(rule.opening, value).is_none() {
            self.run.fresh = false;
            self.run.first = Vec::new();
        }
        self.run.ended = any(rule.ends, value).is_some();
    }

    /// A run begins at a place: of the dialect that was found there.
    fn cut(&mut self, place: Place, found: Option<Detection>) {
        self.out.push(place);
        self.herald = None;
        let named = self.run.named.take();
        self.run = Run::new(found.as_ref().map(|found| found.dialect).or(self.given));
        if found.is_some() {
            self.run.session = named;
            self.run.fresh = false;
        }
    }

    /// A run of the same dialect has begun at a place before this record.
    fn cut_there(&mut self, place: Place) {
        let dialect = self.run.dialect;
        self.cut(place, None);
        self.run.dialect = dialect;
        self.run.sure = true;
        self.run.fresh = false;
    }

    /// The last records looked like another dialect's, and none came that speaks against it.
    fn cut_strangers(&mut self) {
        let Some(stranger) = self.run.stranger else {
            return;
        };
        let best = self.run.strangers.best();
        if let Some(best) = best.filter(|best| best.confidence >= STRONG) {
            self.cut(stranger, Some(best));
        }
    }
}

fn id_of<'a>(paths: &[&str], value: Value<'a>) -> Option<Text<'a>> {
    paths.iter().find_map(|path| {
        let path = match path.split_once(' ') {
            None => path,
            Some((kind, path)) => {
                let found = value.get("type").filter(|found| !found.is_null());
                let fits = match found {
                    None => kind == "-",
                    Some(found) => kind != "-" && found.text().as_deref() == Some(kind),
                };
                if !fits {
                    return None;
                }
                path
            }
        };
        let id = at(value, path)?.text();
        id.filter(|id| !id.is_empty())
    })
}

/// The mark that a record has.
fn any(marks: &[Mark], value: Value<'_>) -> Option<Mark> {
    let has = |mark: &&Mark| at(value, mark.0).is_some_and(|found| fits(found, mark.1));
    marks.iter().find(has).copied()
}

fn fits(found: Value<'_>, text: Option<&str>) -> bool {
    let Some(text) = text else {
        return !found.is_null();
    };
    if let Some(number) = found.as_i64().filter(|_| found.is_integer()) {
        return number.to_string() == text;
    }
    let Some(found) = found.text() else {
        return false;
    };
    match (text.strip_suffix('*'), text.strip_prefix('*')) {
        (Some(head), _) => found.starts_with(head),
        (None, Some(tail)) => found.ends_with(tail),
        (None, None) => *found == *text,
    }
}

fn at<'a>(value: Value<'a>, path: &str) -> Option<Value<'a>> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
