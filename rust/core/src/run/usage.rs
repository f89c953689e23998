//! The usage of a run: its model calls, their sum, the harness's own total, and why the two differ.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::data::{Data, map};
use crate::event::{Event, Tokens, Usage};
use crate::json::Text;
use crate::number::{Number, count};

/// Costs that differ by less are the same: sums of floats.
const PENNY: f64 = 1e-6;

const BEYOND: &str = "calls that are not printed, or earlier runs of the session";

/// What harnesses call the tokens that were written to the cache.
const WRITTEN: [&str; 7] = [
    "cache_creation_input_tokens",
    "cache_write_input_tokens",
    "cacheWriteInputTokens",
    "cacheWriteTokens",
    "cacheWrite",
    "inputCacheCreation",
    "input_cache_creation",
];

/// Prompt and completion tokens.
type Size = (i64, i64);

/// The counters of one model call or of a total; None: not printed.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
struct Counters {
    prompt: Option<i64>,
    completion: Option<i64>,
    cached: Option<i64>,
    cost: Option<Number>,
    /// Tokens that were written to the cache, a share of `prompt`.
    written: Option<i64>,
}

impl Counters {
    fn of(tokens: &Tokens<'_>) -> Self {
        Counters {
            prompt: tokens.prompt,
            completion: tokens.completion,
            cached: tokens.cached,
            cost: tokens.cost,
            written: written(tokens),
        }
    }

    fn size(&self) -> Size {
        (self.prompt.unwrap_or(0), self.completion.unwrap_or(0))
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
    /// The counts are those of the call's beginning.
    begun: bool,
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
            ("cache_write_tokens", self.counters.written.into()),
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
    /// The harness's own total of each model.
    models: Vec<(Box<str>, Counters)>,
    /// Which model calls are in the harness's totals and not on the wire.
    beyond: Option<Box<str>>,
}

impl Ledger {
    /// Whether a restored ledger is one that can be.
    pub fn is_sound(&self) -> bool {
        self.keys.values().all(|at| *at < self.calls.len())
    }

    pub fn take(&mut self, usage: &Usage<'_>, event: &Event<'_>, session: &Session<'_>) {
        if usage.run {
            self.total = Some(Counters::of(usage.total.unwrap_or(usage.tokens)));
            self.beyond = usage.beyond.map(Box::from);
            self.models.clear();
            for (name, tokens) in usage.models {
                let counters = Counters::of(tokens);
                match self.models.iter_mut().find(|(known, _)| **known == **name) {
                    Some((_, known)) => *known = counters,
                    None => self.models.push(((**name).into(), counters)),
                }
            }
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
            begun: usage.begun,
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

    /// The harness's own total of each model, as far as it prints them.
    pub fn printed(&self) -> Data<'_> {
        let models = self.models.iter().map(|(name, total)| {
            map([
                ("model", (&**name).into()),
                ("prompt_tokens", total.prompt.into()),
                ("completion_tokens", total.completion.into()),
                ("cached_tokens", total.cached.into()),
                ("cost_usd", total.cost.into()),
                ("cache_write_tokens", total.written.into()),
            ])
        });
        Data::List(models.collect())
    }

    /// `compacted`, `agents`: whether the run has compactions, and sub-agents.
    pub fn to_data(&self, compacted: bool, agents: bool) -> Data<'static> {
        let calls = self.sum(|_| true);
        let run = self.total.map(|total| total.to_data(None));
        let difference = self.difference(&calls, compacted, agents);
        map([
            ("calls", calls.to_data(Some(self.calls.len() as i64))),
            ("run", run.into()),
            ("difference", difference.into()),
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
            written: add(|counters| counters.written),
            cost: calls
                .iter()
                .filter_map(|call| call.counters.cost)
                .reduce(|a, b| a + b),
        }
    }

    /// In words, why the sum of the calls is not the harness's total; None if it is, or if one of them is not there.
    fn difference(&self, calls: &Counters, compacted: bool, agents: bool) -> Option<String> {
        let run = self.total?;
        if self.calls.is_empty() {
            return None;
        }
        let pairs = [
            ("prompt", calls.prompt, run.prompt),
            ("completion", calls.completion, run.completion),
            ("cached", calls.cached, run.cached),
        ];
        let mut apart: Vec<String> = pairs
            .iter()
            .filter_map(|(label, mine, own)| {
                let (mine, own) = ((*mine)?, (*own)?);
                (mine != own).then(|| format!("{label}: calls {mine}, harness {own}"))
            })
            .collect();
        if let (Some(mine), Some(own)) = (calls.cost, run.cost) {
            let (mine, own) = (mine.as_f64(), own.as_f64());
            if (mine - own).abs() > PENNY {
                apart.push(format!("cost: calls {mine:.6}, harness {own:.6}"));
            }
        }
        if apart.is_empty() {
            return None;
        }
        let reasons = self.reasons(calls.size(), run.size(), compacted, agents);
        Some(format!("{} ({})", apart.join("; "), reasons.join("; ")))
    }

    fn reasons(&self, mine: Size, mut own: Size, compacted: bool, agents: bool) -> Vec<String> {
        if own == (0, 0) && mine != own {
            return vec!["the harness counts none of the calls".to_owned()];
        }
        let main = self.calls.iter().filter(|call| call.is_main()).count();
        let beside = self.calls.len() - main;
        if beside > 0 && mine != own && self.sum(ModelCall::is_main).size() == own {
            let beside = calls_of(beside);
            return vec![format!(
                "the harness counts the main loop only, without {beside} of sub-agents and helpers"
            )];
        }
        let mut reasons = Vec::new();
        for (name, total) in &self.models {
            let (prompt, completion) = total.size();
            let shown =
                |call: &ModelCall| call.model.as_deref().is_some_and(|m| bare(m) == bare(name));
            if (prompt, completion) != (0, 0) && !self.calls.iter().any(shown) {
                reasons.push(format!(
                    "the harness counts {prompt} prompt and {completion} completion tokens of {name}, \
                     of which no call is printed"
                ));
                own = (
                    own.0.saturating_sub(prompt),
                    own.1.saturating_sub(completion),
                );
            }
        }
        let begun = self.calls.iter().filter(|call| call.begun).count();
        if own.0 > mine.0 || (own.1 > mine.1 && begun == 0) {
            let among = match (compacted, agents) {
                (true, true) => "compaction and sub-agents",
                (true, false) => "compaction",
                (false, _) => "sub-agents",
            };
            reasons.push(match compacted || agents {
                true => format!(
                    "the harness counts calls that are not printed, among them those of {among}"
                ),
                false => {
                    let beyond = self.beyond.as_deref().unwrap_or(BEYOND);
                    format!("the harness also counts {beyond}")
                }
            });
        }
        if own.1 > mine.1 && begun > 0 {
            let up_to = match begun > 1 || own.0 != mine.0 {
                true => "up to ",
                false => "",
            };
            let begun = calls_of(begun);
            reasons.push(format!(
                "the output of {up_to}{begun} is printed as it stood when a call began"
            ));
        }
        if own.0 < mine.0 || own.1 < mine.1 {
            reasons.push(self.left_out(own));
        }
        if reasons.is_empty() {
            reasons.push("the harness reckons its total by itself".to_owned());
        }
        reasons
    }

    /// What the harness's total lacks: all calls before one, if the rest adds up to it.
    fn left_out(&self, own: Size) -> String {
        let mut sum = (0_i64, 0_i64);
        for (at, call) in self.calls.iter().enumerate().skip(1).rev() {
            let (prompt, completion) = call.counters.size();
            sum = (
                sum.0.saturating_add(prompt),
                sum.1.saturating_add(completion),
            );
            if sum == own {
                let (before, line) = (calls_of(at), call.line);
                return format!(
                    "the harness's total began anew: it leaves out {before} before line {line}"
                );
            }
        }
        "the harness leaves out calls that the wire shows".to_owned()
    }
}

/// A model's name without what Claude Code says of its context window: `[1m]`.
fn bare(model: &str) -> &str {
    model.split('[').next().unwrap_or(model)
}

fn calls_of(number: usize) -> String {
    match number {
        1 => "1 call".to_owned(),
        _ => format!("{number} calls"),
    }
}

/// The tokens that were written to the cache, as the harness calls them.
fn written(tokens: &Tokens<'_>) -> Option<i64> {
    let extra = |name: &str| tokens.extra.iter().rev().find(|(key, _)| &**key == name);
    let named = WRITTEN
        .iter()
        .find_map(|name| extra(name).and_then(|(_, value)| number_of(value)));
    named.or_else(|| number_of(&extra("cache")?.1.get("write")?))
}

fn number_of(value: &Data<'_>) -> Option<i64> {
    match value {
        Data::Number(Number::Int(number)) => Some(*number),
        Data::Wire(value) => count(Some(*value)),
        _ => None,
    }
}
