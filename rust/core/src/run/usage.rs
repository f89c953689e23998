//! The usage of a run: its model calls, their sum, the harness's own total, and why the two differ.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::data::{Data, map};
use crate::event::{Event, Tokens, Usage};
use crate::json::Text;
use crate::number::Number;

/// The counters of one model call or of a total; None: not printed.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
struct Counters {
    prompt: Option<i64>,
    completion: Option<i64>,
    cached: Option<i64>,
    cost: Option<Number>,
}

impl Counters {
    fn of(tokens: &Tokens<'_>) -> Self {
        Counters {
            prompt: tokens.prompt,
            completion: tokens.completion,
            cached: tokens.cached,
            cost: tokens.cost,
        }
    }

    fn to_data(self, count: Option<i64>) -> Data<'static> {
        map([
            ("count", count.into()),
            ("prompt_tokens", self.prompt.into()),
            ("completion_tokens", self.completion.into()),
            ("cached_tokens", self.cached.into()),
            ("cost_usd", self.cost.into()),
        ])
    }
}

#[derive(Deserialize, Serialize)]
struct ModelCall {
    counters: Counters,
    key: Option<Box<str>>,
    message_id: Option<Box<str>>,
    model: Option<Box<str>>,
    timestamp: Option<Box<str>>,
    session_id: Option<Box<str>>,
    parent: Option<Box<str>>,
    side: bool,
    line: u64,
    offset: u64,
}

impl ModelCall {
    fn is_main(&self) -> bool {
        self.parent.is_none() && !self.side
    }

    /// What this record does not say of its model call, an earlier one said.
    fn complete(mut self, earlier: &ModelCall) -> Self {
        let known = |own: &mut Option<Box<str>>, old: &Option<Box<str>>| {
            if own.is_none() {
                own.clone_from(old);
            }
        };
        known(&mut self.message_id, &earlier.message_id);
        known(&mut self.model, &earlier.model);
        known(&mut self.timestamp, &earlier.timestamp);
        known(&mut self.session_id, &earlier.session_id);
        self
    }

    fn to_data(&self) -> Data<'_> {
        map([
            ("key", self.key.as_deref().into()),
            ("message_id", self.message_id.as_deref().into()),
            ("model", self.model.as_deref().into()),
            ("timestamp", self.timestamp.as_deref().into()),
            ("session_id", self.session_id.as_deref().into()),
            ("parent", self.parent.as_deref().into()),
            ("side", self.side.into()),
            ("line", (self.line as i64).into()),
            ("offset", (self.offset as i64).into()),
            ("prompt_tokens", self.counters.prompt.into()),
            ("completion_tokens", self.counters.completion.into()),
            ("cached_tokens", self.counters.cached.into()),
            ("cost_usd", self.counters.cost.into()),
        ])
    }
}

/// What the session says of itself, for calls whose records do not.
#[derive(Default)]
pub struct Session<'s> {
    pub id: Option<&'s str>,
    pub model: Option<&'s str>,
}

/// Each model call once: a later usage with the same key takes the place of the earlier one.
#[derive(Default, Deserialize, Serialize)]
pub struct Ledger {
    calls: Vec<ModelCall>,
    keys: HashMap<String, usize>,
    total: Option<Counters>,
}

impl Ledger {
    /// Whether a restored ledger is one that can be.
    pub fn is_sound(&self) -> bool {
        self.keys.values().all(|at| *at < self.calls.len())
    }

    pub fn take(&mut self, usage: &Usage<'_>, event: &Event<'_>, session: &Session<'_>) {
        if usage.run {
            self.total = Some(Counters::of(usage.total.unwrap_or(usage.tokens)));
            return;
        }
        let stamp = event.stamp;
        let own = |text: &Option<Text<'_>>| text.as_deref().map(Box::<str>::from);
        let model = session.model.filter(|_| stamp.parent.is_none());
        let call = ModelCall {
            counters: Counters::of(usage.tokens),
            key: usage.key.map(Box::from),
            message_id: own(&stamp.message_id),
            model: own(&stamp.model)
                .filter(|model| !model.is_empty())
                .or(model.map(Box::from)),
            timestamp: own(&stamp.timestamp),
            session_id: own(&stamp.session_id)
                .filter(|id| !id.is_empty())
                .or(session.id.map(Box::from)),
            parent: own(&stamp.parent),
            side: usage.side,
            line: event.place.line,
            offset: event.place.offset,
        };
        let Some(key) = usage.key else {
            self.calls.push(call);
            return;
        };
        match self.keys.get(key) {
            Some(&at) => self.calls[at] = call.complete(&self.calls[at]),
            None => {
                self.keys.insert(key.to_owned(), self.calls.len());
                self.calls.push(call);
            }
        }
    }

    /// Each model call: whose it is, its counters, and where the record stands that told them last.
    pub fn rows(&self) -> Data<'_> {
        Data::List(self.calls.iter().map(ModelCall::to_data).collect())
    }

    pub fn to_data(&self) -> Data<'static> {
        let calls = self.sum(|_| true);
        let run = self.total.map(|total| total.to_data(None));
        map([
            ("calls", calls.to_data(Some(self.calls.len() as i64))),
            ("run", run.into()),
            ("difference", self.difference(&calls).into()),
        ])
    }

    /// What the harness says the run cost; the sum of its calls' costs if it gives no total.
    pub fn cost(&self) -> Option<Number> {
        let own = self.total.and_then(|total| total.cost);
        own.or_else(|| self.sum(|_| true).cost)
    }

    /// The counters added up; one that no call printed is None, never 0.
    fn sum(&self, wanted: impl Fn(&ModelCall) -> bool) -> Counters {
        let calls: Vec<_> = self.calls.iter().filter(|call| wanted(call)).collect();
        let add = |counter: fn(&Counters) -> Option<i64>| {
            let known = calls.iter().filter_map(|call| counter(&call.counters));
            known.reduce(|a, b| a.saturating_add(b))
        };
        Counters {
            prompt: add(|counters| counters.prompt),
            completion: add(|counters| counters.completion),
            cached: add(|counters| counters.cached),
            cost: calls
                .iter()
                .filter_map(|call| call.counters.cost)
                .reduce(|a, b| a + b),
        }
    }

    /// In words, why the sum of the calls is not the harness's total; None if it is, or if one of them is not there.
    fn difference(&self, calls: &Counters) -> Option<String> {
        let run = self.total?;
        if self.calls.is_empty() {
            return None;
        }
        let pairs = [
            ("prompt", calls.prompt, run.prompt),
            ("completion", calls.completion, run.completion),
        ];
        let apart: Vec<String> = pairs
            .iter()
            .filter_map(|(label, mine, own)| {
                let (mine, own) = ((*mine)?, (*own)?);
                (mine != own).then(|| format!("{label}: calls {mine}, harness {own}"))
            })
            .collect();
        if apart.is_empty() {
            return None;
        }
        let main = self.sum(ModelCall::is_main);
        let more =
            |(_, mine, own): &(_, Option<i64>, Option<i64>)| own.unwrap_or(0) > mine.unwrap_or(0);
        let why = if main.prompt == run.prompt && main.completion == run.completion {
            "the harness counts the main thread only"
        } else if pairs.iter().any(more) {
            "the harness counts calls that it does not print, or earlier runs of the session"
        } else {
            "the harness leaves out calls that the wire shows"
        };
        Some(format!("{} ({why})", apart.join("; ")))
    }
}
