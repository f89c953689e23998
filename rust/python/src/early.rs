//! A parser that another thread may have: it parses what is next before that is asked for.

use std::collections::VecDeque;
use std::sync::Arc;

use headrace_core::ahead::{Ahead, Early, Pool};
use headrace_core::backlog::Backlog;
use headrace_core::detect::Detection;
use headrace_core::parser::{Output, Parser};
use headrace_core::record;
use headrace_core::source::live::Claim;
use pyo3::prelude::*;

use crate::errors;
use crate::feed::{Input, advance};

/// About how much of a source another thread parses at a time: it wakes up with cold caches.
const EARLY: u64 = 1 << 18;
/// Where an event comes of more bytes than these, in the mean, there is little to make of what was told, and it was
/// copied once more: threads that decode ahead help more.
const SPARSE: u64 = 1 << 10;
/// After that, so many bytes are parsed when they are asked for.
const PAUSE: u64 = 1 << 23;

/// A parser, wherever it is, and what it told early.
pub struct Parsing {
    /// None while another thread has it.
    parser: Option<Box<Parser>>,
    early: Option<Early<Job>>,
    said: Said,
    /// What it was lent.
    lent: Option<Work>,
    told: Told,
    /// Before this offset of the stream, no source is parsed early.
    early_from: u64,
}

/// What another thread does.
struct Job {
    parser: Box<Parser>,
    work: Work,
    told: Backlog,
    result: Result<bool, record::Error>,
}

/// What is parsed.
pub enum Work {
    /// What waited of a live stream: so many bytes.
    Waiting(Vec<Claim>, u64),
    /// Its next pieces.
    Source(Box<Ahead>),
}

/// What the parser said of the stream when it went away.
#[derive(Default)]
struct Said {
    detection: Option<Detection>,
    ending: Option<&'static str>,
    offset: u64,
}

/// What was parsed early and is not handed out yet.
#[derive(Default)]
struct Told {
    backlogs: VecDeque<Backlog>,
    /// How much of the first is handed out.
    at: usize,
    spare: Backlog,
    /// What comes after them.
    failed: Option<record::Error>,
}

impl Job {
    fn run(&mut self) {
        let Job {
            parser,
            work,
            told,
            result,
        } = self;
        *result = match work {
            Work::Waiting(claims, _) => claims
                .drain(..)
                .map_while(|mut claim| {
                    // what can't be read is the stream's end, and is told of then
                    Some(parser.feed(claim.bytes().ok()?, told))
                })
                .collect::<Result<(), _>>()
                .map(|()| true),
            Work::Source(source) => {
                let end = parser.offset() + EARLY;
                loop {
                    let more = advance(source, &mut |input| give(parser, input, told));
                    if !matches!(more, Ok(true)) || parser.offset() >= end {
                        break more;
                    }
                }
            }
        };
    }
}

/// Gives the parser its input; the next line of a decoded piece.
pub fn give(
    parser: &mut Parser,
    input: Input<'_>,
    output: &mut dyn Output,
) -> Result<Option<usize>, record::Error> {
    match input {
        Input::Bytes(chunk) => parser.feed(chunk, output).map(|()| None),
        Input::Decoded(piece, from, about) => parser.feed_decoded(piece, from, about, output),
        Input::End => parser.close(output).map(|()| None),
    }
}

impl Parsing {
    pub fn new(parser: Parser) -> Self {
        Parsing {
            parser: Some(Box::new(parser)),
            early: None,
            said: Said::default(),
            lent: None,
            told: Told::default(),
            early_from: 0,
        }
    }

    /// The parser, once whoever has it is done.
    pub fn parser(&mut self, py: Python<'_>) -> PyResult<&mut Parser> {
        self.settle(py)?;
        let parser = self.parser.as_deref_mut();
        parser.ok_or_else(|| errors::forked(py))
    }

    pub fn detection(&self) -> Option<&Detection> {
        match &self.parser {
            Some(parser) => parser.detection(),
            None => self.said.detection.as_ref(),
        }
    }

    pub fn ending(&self) -> Option<&'static str> {
        match &self.parser {
            Some(parser) => parser.ending(),
            None => self.said.ending,
        }
    }

    pub fn offset(&self) -> u64 {
        match &self.parser {
            Some(parser) => parser.offset(),
            None => self.said.offset,
        }
    }

    /// Whether a source should be parsed early now. Not if rows may be told of, which is faster still.
    pub fn may_go_early(&self) -> bool {
        let parser = self.parser.as_ref();
        parser.is_some_and(|parser| parser.offset() >= self.early_from && !parser.takes_rows())
    }

    /// Has another thread parse this. The parser must be here.
    pub fn go_early(&mut self, work: Work, pool: Arc<Pool>) {
        let Some(parser) = self.parser.take() else {
            return;
        };
        self.said = Said {
            detection: parser.detection().cloned(),
            ending: parser.ending(),
            offset: parser.offset(),
        };
        let job = Job {
            parser,
            work,
            told: std::mem::take(&mut self.told.spare),
            result: Ok(true),
        };
        self.early = Some(Early::new(job, Job::run, pool));
    }

    /// Whether no other thread has the parser.
    pub fn is_here(&self) -> bool {
        self.parser.is_some()
    }

    /// Whether another thread parses, or is done and nobody has asked.
    pub fn is_away(&self) -> bool {
        self.early.is_some()
    }

    /// Has the parser back, and in the backlog what it told. Whether there is more to parse; None if it was here.
    pub fn settle(&mut self, py: Python<'_>) -> PyResult<Option<bool>> {
        let Some(early) = self.early.take() else {
            return Ok(None);
        };
        // While it is waited for, other threads of Python have their turn.
        let job = py.detach(|| early.finish());
        let Job {
            parser,
            work,
            told,
            result,
        } = job.map_err(|_| errors::forked(py))?;
        let size = parser.offset() - self.said.offset;
        if size > told.len() as u64 * SPARSE {
            self.early_from = parser.offset() + PAUSE;
        }
        self.parser = Some(parser);
        self.lent = Some(work);
        self.told.push(told);
        let more = result.unwrap_or_else(|error| {
            self.told.failed = Some(error);
            false
        });
        Ok(Some(more))
    }

    /// What was parsed early last, once.
    pub fn take_back(&mut self) -> Option<Work> {
        self.lent.take()
    }

    /// Whether something was told early that is not handed out: events or, after them, an error.
    pub fn has_told(&self) -> bool {
        self.has_events() || self.told.failed.is_some()
    }

    pub fn has_events(&self) -> bool {
        !self.told.backlogs.is_empty()
    }

    /// The error behind all events.
    pub fn take_error(&mut self) -> Option<record::Error> {
        self.told.failed.take_if(|_| self.told.backlogs.is_empty())
    }

    /// Hands out so many events at most.
    pub fn tell(&mut self, most: usize, output: &mut dyn Output) {
        self.told.tell(most, output);
    }

    /// Nothing of what was told early is handed out any more.
    pub fn forget(&mut self) {
        self.told = Told::default();
    }
}

impl Told {
    fn push(&mut self, backlog: Backlog) {
        if backlog.is_empty() {
            self.spare = backlog;
        } else {
            self.backlogs.push_back(backlog);
        }
    }

    fn tell(&mut self, most: usize, output: &mut dyn Output) {
        let Some(first) = self.backlogs.front() else {
            return;
        };
        let end = first.len().min(self.at.saturating_add(most));
        first.tell(self.at..end, output);
        self.at = end;
        if end == first.len()
            && let Some(mut first) = self.backlogs.pop_front()
        {
            self.at = 0;
            first.clear();
            self.spare = first;
        }
    }
}
