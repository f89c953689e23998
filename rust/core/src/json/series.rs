//! Streamed text comes in rows of records that are alike in all that matters but one string.

use std::sync::{Arc, OnceLock};

use super::paths::Plans;
use super::scan::same_bytes;
use super::tape::{LONE, Node};
use super::template::Pattern;
use super::value::{Doc, Value};

const SLOTS: usize = Series::MEMBERS;

/// A member, by its path, and the strings that it may be.
pub type Is = (&'static [&'static str], &'static [&'static str]);

/// Which records come in rows. Whoever names them here promises that one of them, right behind another that had a text
/// to add, and that is all that came of it, and has the same members, has nothing to say but the text that it adds to
/// that.
#[derive(Debug)]
pub struct Series {
    /// In a row, they are the same.
    pub is: &'static [Is],
    /// The text.
    pub text: &'static [&'static str],
    /// Members that are the same in a row, if they are there.
    pub same: &'static [&'static [&'static str]],
    /// Members that are not there, or else a record says more, or something else.
    pub without: &'static [&'static [&'static str]],
    /// What stands in texts that may say something else, and need a look.
    pub odd: &'static [&'static str],
    /// Members that matter to nobody but who wants the events, which say them too. None: nobody has looked which, and
    /// there are no rows for those who want the events.
    pub stamp: Option<&'static [&'static [&'static str]]>,
}

impl Series {
    /// For those who name a few facts.
    pub const NO_FACTS: Series = Series {
        is: &[],
        text: &[],
        same: &[],
        without: &[],
        odd: &[],
        stamp: None,
    };
    /// No series has more of them in `is`, `same` and `stamp`.
    pub const MEMBERS: usize = 12;
}

/// The series of a stream, once they are known: who decodes it elsewhere may ask.
pub type Expected = Arc<OnceLock<&'static [Series]>>;

/// Where the texts of a series that fit one pattern have what differs.
#[derive(Clone, Copy, Debug)]
struct Form {
    series: &'static Series,
    /// Place of the slot with the text.
    text: u8,
    /// The slots of what is to be the same, and how many.
    same: [u8; SLOTS],
    count: u8,
    /// The slots of `is`; [`CONSTANT`] for what is no slot.
    is: [u8; SLOTS],
}

/// As it should be in all texts that fit.
const CONSTANT: u8 = u8::MAX;

impl Form {
    /// None: no text that fits the pattern is of the series.
    fn new(series: &'static Series, pattern: &Pattern, stamped: bool) -> Option<Form> {
        let stamp = match stamped {
            true => series.stamp?,
            false => &[],
        };
        let mut form = Form {
            series,
            text: pattern.slot(pattern.spot(series.text))?,
            same: [0; SLOTS],
            count: 0,
            is: [CONSTANT; SLOTS],
        };
        for ((path, words), slot) in series.is.iter().zip(&mut form.is) {
            let spot = pattern.spot(path);
            match pattern.constant(spot) {
                Some(value) if is_one_of(value, words) => {}
                Some(_) => return None,
                None => *slot = pattern.slot(spot)?,
            }
        }
        if series
            .without
            .iter()
            .any(|path| pattern.spot(path).is_there())
        {
            return None;
        }
        let is = form.is.into_iter().filter(|slot| *slot != CONSTANT);
        is.for_each(|slot| form.keep(slot));
        for path in series.same.iter().chain(stamp) {
            let spot = pattern.spot(path);
            if spot.is_there() && pattern.constant(spot).is_none() {
                form.keep(pattern.slot(spot)?);
            }
        }
        Some(form)
    }

    fn keep(&mut self, slot: u8) {
        self.same[usize::from(self.count)] = slot;
        self.count += 1;
    }

    fn same(&self) -> &[u8] {
        &self.same[..usize::from(self.count)]
    }

    /// Whether a text that fits the pattern is of the series.
    fn has(&self, doc: &Doc<'_>) -> bool {
        let mut is = self.is.iter().zip(self.series.is);
        is.all(|(slot, (_, words))| {
            let is_word = |value| is_one_of(value, words);
            *slot == CONSTANT || doc.slot(*slot).is_some_and(is_word)
        })
    }
}

/// A record that the next ones may go on with, as far as that matters.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Number of the pattern that it fits.
    pub pattern: u32,
    form: Form,
    /// What is to be the same, and where each of it ends.
    same: [u8; SAME],
    ends: [u8; SLOTS],
}

/// Bytes of what is to be the same; with more, no row is begun.
const SAME: usize = 192;

impl Head {
    /// None for a record with half a character: what comes of it need not be its own, but a half that waited.
    fn new(form: Form, doc: &Doc<'_>) -> Option<Head> {
        if doc.has_lone_surrogate() || doc.slot(form.text)?.as_str()?.raw().is_empty() {
            return None;
        }
        let mut head = Head {
            pattern: doc.fitted()?.pattern().number(),
            form,
            same: [0; SAME],
            ends: [0; SLOTS],
        };
        let mut end = 0;
        for (slot, to) in form.same().iter().zip(&mut head.ends) {
            let value = doc.slot(*slot)?.raw();
            let room = head.same.get_mut(end..end + value.len())?;
            room.copy_from_slice(value);
            end += value.len();
            *to = end as u8;
        }
        Some(head)
    }

    /// Adds the text of a record that goes on with this one. False, and it doesn't, if that differs in what matters, says
    /// nothing or something odd, or has half a character anywhere: what is lost is told of record by record.
    #[inline]
    pub(super) fn push(&self, text: &str, slots: &[Node], texts: &mut String) -> bool {
        let mut start = 0;
        for (slot, end) in self.form.same().iter().zip(&self.ends) {
            let mine = self.same.get(start..usize::from(*end));
            start = usize::from(*end);
            let theirs = slots.get(usize::from(*slot)).map(|slot| slot.bytes(text));
            let (Some(mine), Some(theirs)) = (mine, theirs) else {
                return false;
            };
            if !same_bytes(mine, theirs) {
                return false;
            }
        }
        let flags = slots.iter().fold(0, |flags, slot| flags | slot.info);
        let said = slots.get(usize::from(self.form.text)).and_then(|slot| {
            let nodes = std::slice::from_ref(slot);
            Value { text, nodes }.as_str()
        });
        match said {
            Some(said) if flags & LONE == 0 && !said.raw().is_empty() => {
                let before = texts.len();
                said.push_to(texts);
                let is_odd = |word: &&str| texts[before..].contains(*word);
                if self.form.series.odd.iter().any(is_odd) {
                    texts.truncate(before);
                    return false;
                }
                true
            }
            _ => false,
        }
    }
}

/// A record of a row.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where its text begins in the bytes of the row, and its size.
    pub start: u32,
    pub size: u32,
    /// Where what it adds ends in the text of the row.
    pub end: u32,
}

/// Records of one series that go on with the one before them.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Their lines, LF and all.
    pub bytes: &'a [u8],
    pub count: u64,
    /// The size of the longest line, without its LF.
    pub longest: u64,
    /// Where the text of the last record begins in `bytes`, and its size.
    pub last: (u64, u64),
    /// Their texts, one after the other.
    pub text: &'a str,
    /// Each of them, if somebody asked.
    pub parts: &'a [Part],
    /// [`Pattern::number`] of the pattern that they fit, and the record before them.
    pub pattern: u32,
}

fn is_one_of(value: Value<'_>, words: &[&str]) -> bool {
    words.iter().any(|word| value.is_text(word))
}

/// The forms of a list of series, found out once for each pattern.
#[derive(Debug)]
pub struct Forms {
    series: &'static [Series],
    stamped: bool,
    known: Plans<Form>,
}

impl Forms {
    /// `stamped`: somebody wants the events.
    pub fn new(series: &'static [Series], stamped: bool) -> Self {
        Forms {
            series,
            stamped,
            known: Plans::default(),
        }
    }

    /// None: no other record goes on with this one.
    #[inline]
    pub fn head(&mut self, doc: &Doc<'_>) -> Option<Head> {
        let Forms {
            series,
            stamped,
            known,
        } = self;
        let pattern = doc.fitted()?.pattern();
        let form = known.of(pattern, || {
            series
                .iter()
                .find_map(|series| Form::new(series, pattern, *stamped))
        });
        form.filter(|form| form.has(doc))
            .and_then(|form| Head::new(form, doc))
    }
}
