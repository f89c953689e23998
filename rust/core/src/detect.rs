//! Which dialect a stream is, by content alone: the first records say, and it is told why.

use serde::{Deserialize, Serialize};

use crate::dialect::{self, DIALECTS, Dialect, SURE, TEXT_SIGNS};
use crate::json::Value;
use crate::report::Malformed;

/// How many records may wait for a decision.
pub(crate) const WINDOW_RECORDS: u64 = 64;
/// And how many bytes of them.
const WINDOW_BYTES: u64 = 1 << 20;

/// A decision: confidence from 0 to 1, and what decided it, record by record.
#[derive(Clone, Deserialize, Serialize)]
pub struct Detection {
    pub dialect: &'static Dialect,
    pub version: Option<String>,
    pub confidence: f64,
    pub why: Vec<String>,
}

impl Detection {
    /// That the caller says what the dialect is.
    pub fn given(dialect: &'static Dialect) -> Self {
        Detection {
            dialect,
            version: None,
            confidence: 1.0,
            why: vec!["given by the caller".to_owned()],
        }
    }
}

/// What the records so far say for one dialect.
#[derive(Deserialize, Serialize)]
struct Case {
    dialect: &'static Dialect,
    weight: i32,
    version: Option<String>,
    why: Vec<String>,
}

/// Looks at records one by one until one is sure, or until the window is full and the best guess must do.
#[derive(Default, Deserialize, Serialize)]
pub struct Detector {
    /// In the order in which the dialects showed up.
    cases: Vec<Case>,
    records: u64,
    bytes: u64,
}

impl Detector {
    /// Takes the next record; returns the decision as soon as there is one.
    pub fn look(&mut self, record: Value<'_>, line: u64, size: u64) -> Option<Detection> {
        self.records += 1;
        self.bytes += size;
        for dialect in DIALECTS {
            let Some(sign) = (dialect.sign)(record) else {
                continue;
            };
            let at = match self
                .cases
                .iter()
                .position(|c| c.dialect.name == dialect.name)
            {
                Some(at) => at,
                None => {
                    self.cases.push(Case {
                        dialect,
                        weight: 0,
                        version: None,
                        why: Vec::new(),
                    });
                    self.cases.len() - 1
                }
            };
            let case = &mut self.cases[at];
            case.weight += sign.weight;
            case.why.push(format!("line {line}: {}", sign.why));
            case.version = case.version.take().or(sign.version);
        }
        let best = self.best()?;
        (best.confidence >= 1.0 || self.is_full()).then_some(best)
    }

    /// No more records may wait: the best guess must do, now or as soon as there is one.
    pub fn is_full(&self) -> bool {
        self.records >= WINDOW_RECORDS || self.bytes >= WINDOW_BYTES
    }

    /// The best guess so far; None if no record looked like any dialect.
    pub fn best(&self) -> Option<Detection> {
        let mut cases = self.cases.iter();
        let first = cases.next()?;
        // the one that showed up first wins a tie
        let best = cases.fold(first, |best, case| {
            if case.weight > best.weight {
                case
            } else {
                best
            }
        });
        if best.weight <= 0 {
            return None; // shapes that could be anything's, or that speak against it
        }
        let others = self
            .cases
            .iter()
            .filter(|case| case.dialect.name != best.dialect.name);
        let rival = others.map(|case| case.weight).max().unwrap_or(0);
        let sure = best.weight >= SURE && best.weight > rival;
        Some(Detection {
            dialect: best.dialect,
            version: best.version.clone(),
            confidence: if sure {
                1.0
            } else {
                (f64::from(best.weight) / f64::from(SURE)).min(0.99)
            },
            why: best.why.clone(),
        })
    }

    /// A guess for a stream without any record: a harness that printed nothing but why it failed.
    pub fn by_text(&self, lines: &[Malformed]) -> Option<Detection> {
        if self.records > 0 {
            return None;
        }
        TEXT_SIGNS.iter().find_map(|(name, sign)| {
            let (line, why) = lines
                .iter()
                .find_map(|line| Some((line.line, sign(&line.text)?)))?;
            Some(Detection {
                dialect: dialect::named(name)?,
                version: None,
                confidence: 0.4,
                why: vec![format!("line {line}: {why}")],
            })
        })
    }
}
