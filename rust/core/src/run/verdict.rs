//! How a run ended, and the records that prove it.
//!
//! The stream has the first word: its terminal record, then its last turn, then open turns and calls. Exit code and
//! stderr fill in what it left open and never overrule what it said.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::{Judge, Reducer};
use crate::data::{Data, map};
use crate::event::{Event, Place, State, ToolCall, ToolCallUpdate};

/// What the caller knows of the process: exit code as Python's `subprocess` gives it (or 128+n), and its stderr.
#[derive(Default)]
pub struct Exit {
    pub code: Option<i64>,
    pub stderr: Vec<u8>,
}

impl Exit {
    pub fn stderr_text(&self) -> Cow<'_, str> {
        match String::from_utf8_lossy(&self.stderr) {
            Cow::Borrowed(text) => Cow::Borrowed(trim(text)),
            Cow::Owned(text) => Cow::Owned(trim(&text).to_owned()),
        }
    }

    /// The signal that ended the process.
    pub fn signal(&self) -> Option<i64> {
        match self.code? {
            code @ ..0 => Some(-code),
            code @ (129 | 130 | 137 | 141 | 143) => Some(code - 128),
            _ => None,
        }
    }

    /// Whether the exit code is there and tells of a failure.
    pub fn failed(&self) -> bool {
        self.code.is_some_and(|code| code != 0)
    }
}

/// As Python's `str.strip` does it.
fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || ('\x1c'..='\x1f').contains(&c))
}

/// An outcome with the harness's word for it and the reason in ours.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Ending {
    pub outcome: Cow<'static, str>,
    pub reason: Option<String>,
    pub why: Cow<'static, str>,
}

impl Ending {
    pub fn new(outcome: &'static str, reason: Option<&str>, why: &'static str) -> Self {
        Ending {
            outcome: outcome.into(),
            reason: reason.map(str::to_owned),
            why: why.into(),
        }
    }
}

/// What came last on the main thread, and in the last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum LastWord {
    #[default]
    Nothing,
    Answer,
    Call,
    Result,
}

/// What the stream said so far of how it ends.
#[derive(Default, Deserialize, Serialize)]
pub struct Progress {
    pub turn_open: bool,
    /// The last terminal record.
    ended: Option<Ending>,
    /// How the last turn ended.
    turn: Option<Ending>,
    /// Line and offset of the record that decided last.
    place: (u64, u64),
    /// Of the last record that told of an answer, a call or a state.
    last: (u64, u64),
    /// Announced calls without a result, by number.
    pub open_calls: BTreeMap<u32, String>,
    pub last_word: LastWord,
}

// caps that harnesses name on stderr when the stream just stops
static LIMIT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)max(imum)?[ _-]?(number of )?(session[ _-]?)?(turns?|steps?|tool[ _-]?calls?|budget|output tokens)",
        r"|(turn|step|budget|quota|usage|context|tool call)s?[ _-](limit|cap)\b|limit (of \S+ )?(reached|exceeded)",
        r"|exceeded (the )?(maximum|limit|quota)|recursion limit|loop\.max_steps_exceeded",
    ))
});
static TIMEOUT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)wall[ _-]?(clock|time)|timed out after|run exceeded timeout|\btimeout exceeded")
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns of this module are valid")
}

impl Progress {
    pub(super) fn answered(&mut self, place: Place) {
        self.seen(place);
        self.last_word = LastWord::Answer;
    }

    pub(super) fn called(&mut self, call: &ToolCall<'_>, event: &Event<'_>) {
        self.seen(event.place);
        if matches!(call.status, "pending" | "in_progress") {
            self.open_calls.insert(call.call, call.id.to_owned());
        }
        if event.stamp.parent.is_none() {
            self.last_word = LastWord::Call;
        }
    }

    pub(super) fn updated(&mut self, update: &ToolCallUpdate<'_>, event: &Event<'_>) {
        self.seen(event.place);
        if update.done {
            self.open_calls.remove(&update.call);
            if event.stamp.parent.is_none() {
                self.last_word = LastWord::Result;
            }
        }
    }

    pub(super) fn state(&mut self, state: &State<'_>, event: &Event<'_>) {
        self.seen(event.place);
        let text = |key| state.text(key).map(|text| text.into_string());
        let ending = |why| {
            Some(Ending {
                outcome: text("outcome")?.into(),
                reason: text("reason"),
                why: Cow::Borrowed(why),
            })
        };
        match (state.name, text("phase").as_deref()) {
            ("turn", Some("start")) => {
                self.turn_open = true;
                self.ended = None;
                self.turn = None;
                self.last_word = LastWord::Nothing;
            }
            ("turn", _) => {
                self.turn_open = false;
                self.turn = ending("the last turn ended here");
                if self.turn.is_some() {
                    self.place = (event.place.line, event.place.offset);
                }
            }
            ("end", _) => {
                self.turn_open = false;
                self.ended = ending("terminal record");
                self.place = (event.place.line, event.place.offset);
            }
            _ => {}
        }
    }

    /// What the stream said last of how it ends: "end" after a terminal record, "turn" after a turn that ended with an
    /// outcome; None when it has said nothing, or when another turn was opened since.
    pub fn word(&self) -> Option<&'static str> {
        match (&self.ended, &self.turn) {
            (Some(_), _) => Some("end"),
            (None, Some(_)) => Some("turn"),
            (None, None) => None,
        }
    }

    fn seen(&mut self, place: Place) {
        self.last = (place.line, place.offset);
    }

    // ---------------------------------------------------------------- the decision

    /// The verdict (outcome, reason, evidence), and the outcome once more.
    pub(super) fn decide(
        &self,
        run: &Reducer,
        records: u64,
        judge: Option<Judge<'_>>,
        exit: &Exit,
    ) -> (Data<'static>, Cow<'static, str>) {
        let (ending, (line, offset)) = match self.ended.as_ref().or(self.turn.as_ref()) {
            Some(ending) => (ending.clone(), self.place),
            None => (self.unsaid(run, records, judge, exit), self.last),
        };
        // nothing on the stream: the evidence is from outside
        let known = |number: u64| (line > 0).then_some(number as i64);
        let outcome = ending.outcome.clone();
        let evidence = map([
            ("line", known(line).into()),
            ("offset", known(offset).into()),
            ("why", Data::Text(ending.why.into())),
        ]);
        let told = map([
            ("outcome", Data::Text(ending.outcome.into())),
            ("reason", ending.reason.into()),
            ("evidence", Data::List(vec![evidence])),
        ]);
        (told, outcome)
    }

    /// The stream has not said how it ended.
    fn unsaid(&self, run: &Reducer, records: u64, judge: Option<Judge<'_>>, exit: &Exit) -> Ending {
        if let Some(signal) = exit.signal() {
            let name = match signal {
                1 => "SIGHUP".into(),
                2 => "SIGINT".into(),
                9 => "SIGKILL".into(),
                13 => "SIGPIPE".into(),
                15 => "SIGTERM".into(),
                other => format!("signal {other}"),
            };
            if matches!(signal, 2 | 15) {
                let why = "no terminal record, and the process ended by a signal";
                return Ending::new("cancelled", Some(&name), why);
            }
            let why = "no terminal record, and the process was killed";
            return Ending::new("incomplete", Some(&name), why);
        }
        let stderr = exit.stderr_text();
        if exit.failed() && TIMEOUT.is_match(&stderr) {
            let why = "no terminal record, and stderr names a time limit";
            return Ending::new("timeout", Some("stderr"), why);
        }
        if exit.failed() && LIMIT.is_match(&stderr) {
            let why = "no terminal record, and stderr names a limit";
            return Ending::new("limit", Some("stderr"), why);
        }
        if let Some(told) = judge.and_then(|judge| judge(run, exit)) {
            return told;
        }
        if let (true, Some(code), 0) = (exit.failed(), exit.code, records) {
            let why = "no record at all, and the exit code tells of a failure";
            return Ending::new("failed", Some(&format!("exit code {code}")), why);
        }
        let why = if self.turn_open {
            "the stream ended in an open turn"
        } else if !self.open_calls.is_empty() {
            "the stream ended with an open tool call"
        } else {
            "the stream ended without a terminal record"
        };
        Ending::new("incomplete", None, why)
    }
}
