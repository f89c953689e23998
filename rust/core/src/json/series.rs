//! Streamed text comes in rows of records that are alike in all that matters but one string.

use std::sync::{Arc, OnceLock};

use super::paths::Plans;
use super::template::Pattern;
use super::value::{Doc, Value};

/// No more slots are compared.
const SLOTS: usize = 8;

/// Which records come in rows. Whoever names them here promises that one of them, right behind another that had a text
/// to add and has the same members, has nothing to say but the text that it adds to that.
#[derive(Debug)]
pub struct Series {
    /// Members, and the strings that they may be: in a row, one of them.
    pub is: &'static [(&'static [&'static str], &'static [&'static str])],
    /// The text.
    pub text: &'static [&'static str],
    /// Members that are the same in a row, if they are there.
    pub same: &'static [&'static [&'static str]],
}

/// The series of a stream, once they are known: who decodes it elsewhere may ask.
pub type Expected = Arc<OnceLock<&'static [Series]>>;

/// Where the texts of a series that fit one pattern have what differs.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    series: &'static Series,
    /// Place of the slot with the text.
    text: u8,
    /// The slots of what is to be the same, and how many. Of `is` first: what is no slot there is [`CONSTANT`].
    same: [u8; SLOTS],
    count: u8,
}

/// As it should be in all texts that fit.
const CONSTANT: u8 = u8::MAX;

impl Form {
    /// None: no text that fits the pattern is of the series.
    fn new(series: &'static Series, pattern: &Pattern) -> Option<Form> {
        let mut form = Form {
            series,
            text: pattern.slot(pattern.spot(series.text))?,
            same: [0; SLOTS],
            count: 0,
        };
        for (path, words) in series.is {
            let spot = pattern.spot(path);
            match pattern.constant(spot) {
                Some(value) if is_one_of(value, words) => form.keep(CONSTANT)?,
                Some(_) => return None,
                None => form.keep(pattern.slot(spot)?)?,
            }
        }
        for path in series.same {
            let spot = pattern.spot(path);
            if spot.is_there() && pattern.constant(spot).is_none() {
                form.keep(pattern.slot(spot)?)?;
            }
        }
        Some(form)
    }

    fn keep(&mut self, slot: u8) -> Option<()> {
        *self.same.get_mut(usize::from(self.count))? = slot;
        self.count += 1;
        Some(())
    }

    /// Whether a text that fits the pattern is of the series.
    fn has(&self, doc: &Doc<'_>) -> bool {
        let mut is = self.same.iter().zip(self.series.is);
        is.all(|(slot, (_, words))| {
            let is_word = |value| is_one_of(value, words);
            *slot == CONSTANT || doc.slot(*slot).is_some_and(is_word)
        })
    }

    /// Adds the text of a record that fits the pattern to another. False, and it doesn't, if that says nothing, or has
    /// half a character in it.
    #[inline]
    pub fn push_text(&self, doc: &Doc<'_>, to: &mut String) -> bool {
        let text = doc.slot(self.text).and_then(|value| value.as_str());
        match text {
            Some(text) if !text.is_lossy() && !text.raw().is_empty() => {
                text.push_to(to);
                true
            }
            _ => false,
        }
    }

    /// What is to be the same in the next record.
    #[inline]
    pub fn same<'a>(&self, doc: &Doc<'a>) -> impl Iterator<Item = &'a [u8]> {
        let slots = self.slots();
        slots.map(|slot| doc.slot(slot).map_or(&b""[..], |value| value.raw()))
    }

    /// The slots of what is to be the same in the next record.
    #[inline]
    pub(super) fn slots(&self) -> impl Iterator<Item = u8> {
        let same = self.same[..usize::from(self.count)].iter().copied();
        same.filter(|slot| *slot != CONSTANT)
    }
}

fn is_one_of(value: Value<'_>, words: &[&str]) -> bool {
    words.iter().any(|word| value.is_text(word))
}

/// The forms of a list of series, found out once for each pattern.
#[derive(Debug)]
pub struct Forms {
    series: &'static [Series],
    known: Plans<Form>,
}

impl Forms {
    pub fn new(series: &'static [Series]) -> Self {
        Forms {
            series,
            known: Plans::default(),
        }
    }

    /// None: the text is of no series, or fits no pattern.
    #[inline]
    pub fn of(&mut self, doc: &Doc<'_>) -> Option<Form> {
        let Forms { series, known } = self;
        let pattern = doc.fitted()?.pattern();
        let form = known.of(pattern, || {
            series.iter().find_map(|series| Form::new(series, pattern))
        });
        form.filter(|form| form.has(doc))
    }
}
