//! Agents print the same record again and again with other texts and numbers in it: an earlier one tells what to expect,
//! so that most of a line need only be compared, and its nodes are there already.
//!
//! A *shape* is what a text is without the values of its strings and numbers: keys, brackets, words, blanks. A template
//! belongs to one shape. It has the text that it was learned from, cut at its *slots*: the values that were not always
//! the same. A text that equals it between the slots, and has a string or number by the rules of the parser in each of
//! them, is JSON and has the template's nodes, moved by what the slots before them are longer or shorter. All other
//! texts go to the parser, which tells what there is to learn: another shape, or another slot of a known one.
//!
//! A result tells nothing of this but the [`Shape`], which only a text that fits a template has.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::paths::Spot;
use super::scan::{BLOCK, Block, plain_text_end, same_bytes};
use super::series::{Head, Part as RowPart, Row};
use super::tape::{LONE, Node};
use super::value::{Doc, How, Value};
use super::{JsonError, Tape, utf8};
use super::{parse, parse::skip_blanks, parse::string_rest};

#[cfg(target_arch = "x86_64")]
mod wide;

/// A text that is longer, or has more nodes, is not learned: its like seldom comes again.
const MAX_TEXT: usize = 4 << 10;
const MAX_NODES: usize = 256;
/// A shape has no more values than this; so a template has no more slots.
const MAX_VALUES: usize = 64;
/// Templates of one decoder, and bytes of all of them: beyond, the one used least lately goes.
const MAX_TEMPLATES: usize = 64;
const MAX_BYTES: usize = 256 << 10;
/// How many of the last used templates are tried on a text, besides the expected one.
const TRIES: usize = 4;
/// About how many bytes a row may have: it is to stay in the caches.
const MAX_ROW: usize = 64 << 10;
/// What may be spent on trying and learning before there is a hit, about in instructions. Every text earns some of it
/// back; an irregular stream soon uses it up, and then costs little more than the parser. Little, as a short stream has
/// no use for what it learns.
const FIRST_BUDGET: i32 = 1 << 17;
/// What may be saved up.
const BUDGET: i32 = 1 << 20;
/// Never so deep in debt that a stream that has turned regular would not get out.
const DEBT: i32 = BUDGET / 16;
/// Earned for each node: less than a fifth of what the parser takes for one, and less than what a hit saves.
const EARNED: i32 = 16;
const SAVED: i32 = 32;
/// Spent on each node of a text to find its shape, on a shape that is new, and on each slot that is cut.
const LOOKING: i32 = 120;
const LEARNING: i32 = 3600;
const CUTTING: i32 = 300;

/// Names what all texts of one shape have in common: their keys and brackets are at the same nodes.
///
/// A number that no other shape of the process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape(NonZeroU32);

/// A number that was not given before.
fn number() -> Option<NonZeroU32> {
    static NUMBERS: AtomicU32 = AtomicU32::new(1);
    let next = |number: u32| number.checked_add(1);
    let number = NUMBERS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    number.ok().and_then(NonZeroU32::new)
}

impl Shape {
    #[inline]
    pub fn number(self) -> u32 {
        self.0.get()
    }
}

/// What reads a stream of records: a tape, and templates of the records so far.
#[derive(Debug)]
pub struct Decoder {
    tape: Tape,
    templates: Templates,
    learns: bool,
    pub(super) recalled: Unfolded,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::new()
    }
}

impl Decoder {
    pub fn new() -> Self {
        Decoder {
            tape: Tape::new(),
            templates: Templates::default(),
            learns: true,
            recalled: Unfolded::default(),
        }
    }

    /// A decoder that sends every text to the parser: what results are compared with.
    pub fn without_templates() -> Self {
        Decoder {
            learns: false,
            ..Decoder::new()
        }
    }

    /// The tape alone, for texts that are no whole lines of the stream.
    pub fn tape(&mut self) -> &mut Tape {
        &mut self.tape
    }

    /// [`Tape::parse`], faster for texts like those before.
    #[inline]
    pub fn parse<'a>(&'a mut self, text: &'a [u8]) -> Result<Doc<'a>, JsonError> {
        let found = match text.len() < u32::MAX as usize {
            true => self.templates.find(text, |end| end == text.len()),
            false => None,
        };
        match found {
            Some((at, _)) => Ok(self.templates.hit(at, text)),
            None => self.parse_unlike(text),
        }
    }

    /// [`parse`](Decoder::parse) of the line at the start of `text`, and what that is without its line end (LF, or CR
    /// and LF), if it is like texts before it: then nobody need look for its end first. If it is not, or if it has no
    /// end yet, None.
    #[inline]
    pub fn parse_line<'a>(&'a mut self, text: &'a [u8]) -> Option<(Doc<'a>, &'a [u8])> {
        let text = &text[..text.len().min(u32::MAX as usize - 1)];
        let (at, end) = self.templates.find(text, |end| ends_line(text, end))?;
        let line = &text[..end];
        Some((self.templates.hit(at, line), line))
    }

    /// The records at the start of `text` that go on with the one that was read last, which has that head; their texts are
    /// added to `texts`, and each of them to `parts`. None: there are none, or it is not worth a try.
    pub fn row<'a>(
        &mut self,
        head: &Head,
        text: &'a [u8],
        texts: &'a mut String,
        mut parts: Option<&'a mut Vec<RowPart>>,
    ) -> Option<Row<'a>> {
        let Templates { list, last, .. } = &self.templates;
        let template = list.get(*last).filter(|it| it.next == *last)?;
        if template.pattern.number != head.pattern || self.templates.budget < 0 {
            return None;
        }
        let pattern = template.pattern.clone();
        let before = texts.len();
        let (mut at, mut count, mut longest, mut start, mut size) = (0, 0, 0, 0, 0);
        while at < MAX_ROW {
            let rest = &text[at..];
            let slots = &mut self.templates.slots;
            let end = match pattern.fit(rest, slots, |end| ends_line(rest, end)) {
                Ok(end) => end,
                Err(cost) => {
                    self.templates.spend(cost);
                    break;
                }
            };
            // SAFETY: as in `hit`.
            let line = unsafe { std::str::from_utf8_unchecked(&rest[..end]) };
            if !head.push(line, &slots[..pattern.steps.len() - 1], texts) {
                break;
            }
            (start, size) = (at, end);
            if let Some(parts) = &mut parts {
                parts.push(RowPart {
                    start: start as u32,
                    size: size as u32,
                    end: (texts.len() - before) as u32,
                });
            }
            let end = end + usize::from(rest[end] == b'\r');
            longest = longest.max(end);
            at += end + 1;
            count += 1;
        }
        self.templates.again(count);
        (count > 0).then(|| Row {
            bytes: &text[..at],
            count: count.into(),
            longest: longest as u64,
            last: (start as u64, size as u64),
            text: &texts[before..],
            parts: parts.map_or(&[], |parts| parts),
            pattern: pattern.number,
        })
    }

    /// What the templates take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.templates.list.iter().map(Template::bytes).sum()
    }

    /// [`parse`](Decoder::parse) of a text that is known to be like none before it.
    #[inline(never)]
    pub fn parse_unlike<'a>(&'a mut self, text: &'a [u8]) -> Result<Doc<'a>, JsonError> {
        let doc = self.tape.parse(text)?;
        if self.learns {
            let Value { text, nodes } = doc.root();
            self.templates.earn(EARNED, nodes.len());
            if text.len() <= MAX_TEXT && !doc.has_lone_surrogate() {
                self.templates.learn(text, nodes);
            }
        }
        Ok(doc)
    }
}

#[derive(Debug)]
struct Templates {
    list: Vec<Template>,
    /// Places of those used last, the last first; at most [`TRIES`].
    recent: Vec<usize>,
    /// Place of the last text's.
    last: usize,
    /// Goes up with each use.
    clock: u64,
    /// Left to spend; below 0 every text goes to the parser.
    budget: i32,
    /// Of the text at hand, before anything was spent on it: or else what little is earned would all go into tries,
    /// and nothing be learned.
    may_spend: bool,
    /// Of the text at hand, which is looked at to learn from it.
    values: Vec<Leaf>,
    /// Of the text at hand.
    slots: Slots,
    unfolded: Unfolded,
}

/// Whether a line of the text may end at this offset, with LF or CR and LF.
#[inline(always)]
fn ends_line(text: &[u8], end: usize) -> bool {
    match text.get(end) {
        // A CR before it is part of the line end, and of no text.
        Some(b'\n') => end > 0 && text[end - 1] != b'\r',
        Some(b'\r') => text.get(end + 1) == Some(&b'\n'),
        _ => false,
    }
}

/// The values in the slots of a text, and room for what is behind them.
type Slots = [Node; MAX_VALUES + 1];

/// All nodes of the text at hand, which fits a pattern, if somebody asks for them.
#[derive(Debug, Default)]
pub(super) struct Unfolded {
    nodes: OnceLock<Vec<Node>>,
    /// Room for them.
    spare: Mutex<Vec<Node>>,
}

impl Unfolded {
    #[inline(always)]
    pub(super) fn nodes(&self, fitted: Fitted<'_>) -> &[Node] {
        self.nodes.get_or_init(|| {
            let spare = self.spare.lock();
            let mut nodes = std::mem::take(&mut *spare.unwrap_or_else(PoisonError::into_inner));
            fitted.pattern.unfold(fitted.slots, &mut nodes);
            nodes
        })
    }

    /// Another text is at hand.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        if let Some(nodes) = self.nodes.take() {
            self.spare = Mutex::new(nodes);
        }
    }
}

impl Default for Templates {
    fn default() -> Self {
        Templates {
            list: Vec::new(),
            recent: Vec::new(),
            last: 0,
            clock: 0,
            budget: FIRST_BUDGET,
            may_spend: true,
            values: Vec::new(),
            slots: [Node::default(); MAX_VALUES + 1],
            unfolded: Unfolded::default(),
        }
    }
}

impl Templates {
    /// The place of a template that the text fits, up to an offset where it may end, and that offset. The template is
    /// the one that came next the last time, else one of the last used.
    #[inline]
    fn find(&mut self, text: &[u8], ends: impl Fn(usize) -> bool) -> Option<(usize, usize)> {
        self.may_spend = self.budget >= 0;
        let expected = self.list.get(self.last)?.next;
        if !self.may_spend {
            return None;
        }
        if let Some(template) = self.list.get(expected) {
            match template.pattern.fit(text, &mut self.slots, &ends) {
                Ok(end) => return Some((expected, end)),
                Err(cost) => self.spend(cost),
            }
        }
        for place in 0..self.recent.len() {
            let at = self.recent[place];
            if at == expected {
                continue;
            }
            if let Some(template) = self.list.get(at) {
                match template.pattern.fit(text, &mut self.slots, &ends) {
                    Ok(end) => return Some((at, end)),
                    Err(cost) => self.spend(cost),
                }
            }
        }
        None
    }

    #[inline]
    fn spend(&mut self, cost: i32) {
        self.budget = (self.budget - cost).max(-DEBT);
    }

    /// Notes that a text with so many nodes was read.
    #[inline]
    fn earn(&mut self, each: i32, nodes: usize) {
        let earned = each * nodes.min(MAX_NODES) as i32;
        self.budget = (self.budget + earned).min(BUDGET);
    }

    #[inline]
    fn hit<'a>(&'a mut self, at: usize, text: &'a [u8]) -> Doc<'a> {
        self.used(at);
        let Template { pattern, .. } = &self.list[at];
        self.budget = (self.budget + pattern.saved).min(BUDGET);
        self.unfolded.clear();
        // SAFETY: between its slots the text equals one that was UTF-8 when it was learned, and so are the slots: whole
        // numbers, and strings between quotes, which were looked at.
        let text = unsafe { std::str::from_utf8_unchecked(text) };
        let slots = &self.slots[..pattern.steps.len() - 1];
        Doc {
            text,
            how: How::Fits(Fitted { pattern, slots }, &self.unfolded),
        }
    }

    /// Notes that the text at hand is of this template.
    #[inline]
    fn used(&mut self, at: usize) {
        self.clock += 1;
        self.list[at].used = self.clock;
        if let Some(last) = self.list.get_mut(self.last) {
            last.next = at;
        }
        self.last = at;
        if self.recent.first() != Some(&at) {
            self.put_first(at);
        }
    }

    /// Notes that so many texts more were of the template that was used last.
    fn again(&mut self, count: u32) {
        self.clock += u64::from(count);
        if let Some(template) = self.list.get_mut(self.last) {
            template.used = self.clock;
            let saved = template.pattern.saved.saturating_mul(count as i32);
            self.budget = self.budget.saturating_add(saved).min(BUDGET);
        }
    }

    fn put_first(&mut self, at: usize) {
        self.recent.retain(|&other| other != at);
        self.recent.truncate(TRIES - 1);
        self.recent.insert(0, at);
    }

    /// Learns from a text that the parser had to read.
    fn learn(&mut self, text: &str, nodes: &[Node]) {
        if !self.may_spend || nodes.len() > MAX_NODES || !text.starts_with('{') {
            return;
        }
        self.spend(LOOKING * nodes.len() as i32);
        let frame = values(text.as_bytes(), nodes, &mut self.values);
        if self.values.len() > MAX_VALUES {
            return;
        }
        let is_known =
            |known: &Template| known.frame == frame && known.has_shape(text.as_bytes(), nodes);
        let at = match self.list.iter().position(is_known) {
            Some(at) => {
                let cuts = self.list[at].learn(text, nodes);
                self.spend(CUTTING * cuts as i32);
                at
            }
            // Only of a text without LF the next one is the end of its line.
            None if memchr::memchr(b'\n', text.as_bytes()).is_some() => return,
            None => {
                self.spend(LEARNING);
                match Template::new(text, nodes, &self.values, frame) {
                    Some(template) => self.add(template),
                    None => return,
                }
            }
        };
        self.used(at);
    }

    fn add(&mut self, new: Template) -> usize {
        let mut bytes = new.bytes() + self.list.iter().map(Template::bytes).sum::<usize>();
        while self.list.len() >= MAX_TEMPLATES || bytes > MAX_BYTES && !self.list.is_empty() {
            let places = 0..self.list.len();
            let oldest = places.min_by_key(|&at| self.list[at].used).unwrap_or(0);
            // What is said of places elsewhere may be wrong from here on. It is only where to look first.
            bytes -= self.list.swap_remove(oldest).bytes();
        }
        self.list.push(new);
        self.list.len() - 1
    }
}

/// What a decoder knows of one shape.
#[derive(Debug)]
struct Template {
    pattern: Arc<Pattern>,
    values: Box<[Leaf]>,
    /// Of its shape; see [`values`].
    frame: u64,
    /// Place of the template of the text that came next the last time.
    next: usize,
    /// When it was used last.
    used: u64,
}

/// A text cut at its slots.
#[derive(Debug)]
pub struct Pattern {
    number: u32,
    shape: Shape,
    /// What it was learned from, and its nodes.
    text: Box<str>,
    learned: Box<[Node]>,
    /// What has which node.
    parts: Box<[Part]>,
    /// One for each slot, and the last for what stands behind them.
    steps: Box<[Step]>,
    /// The texts of all literals, each from the start of a block.
    blocks: Box<[Block]>,
    closes: Vec<Close>,
    /// No text that fits has fewer bytes: each slot has one.
    least: usize,
    /// Earned by a text that fits.
    saved: i32,
}

/// What a node of a pattern is in the texts that fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The same in all of them.
    Constant,
    /// With its place.
    Slot(u8),
    /// A container with slots in it.
    Changing,
}

/// That a text fits a pattern, and how.
#[derive(Clone, Copy, Debug)]
pub struct Fitted<'a> {
    pub(super) pattern: &'a Arc<Pattern>,
    /// The nodes of what it has in the slots.
    pub(super) slots: &'a [Node],
}

impl<'a> Fitted<'a> {
    #[inline]
    pub fn shape(&self) -> Shape {
        self.pattern.shape
    }

    #[inline]
    pub fn pattern(&self) -> &'a Pattern {
        self.pattern
    }

    /// Whether any string has an unpaired half of a surrogate pair: texts with one are not learned.
    pub(super) fn has_lone_surrogate(&self) -> bool {
        let mut slots = self.pattern.steps.iter().zip(self.slots);
        slots.any(|(step, slot)| step.slot == Slot::String && slot.info & LONE != 0)
    }

    /// The value at a spot of the text, if it takes no more than a look.
    #[inline(always)]
    pub(super) fn at(&self, spot: Spot, text: &'a str) -> Option<Value<'a>> {
        let at = spot.0 as usize;
        match *self.pattern.parts.get(at)? {
            Part::Slot(slot) => Some(Value {
                text,
                nodes: std::slice::from_ref(self.slots.get(slot as usize)?),
            }),
            Part::Constant => Some(self.pattern.learned(at)),
            Part::Changing => None,
        }
    }
}

/// The node of a string or number that is no key.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    node: u32,
    is_slot: bool,
}

/// A literal, which must stand where it stands, and the slot behind it.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Bytes of the literal. The opening quote of a string is part of it.
    len: u32,
    /// Its first block.
    block: u32,
    /// A bit for each byte of it in the last of its blocks.
    last: u32,
    node: u32,
    slot: Slot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    String,
    Number,
    /// None: the text is over.
    End,
}

impl Step {
    /// Adds the blocks of its literal to the others.
    fn new(literal: &[u8], node: u32, slot: Slot, blocks: &mut Vec<Block>) -> Step {
        let block = blocks.len() as u32;
        for part in literal.chunks(BLOCK) {
            let mut block = [0; BLOCK];
            block[..part.len()].copy_from_slice(part);
            blocks.push(block);
        }
        Step {
            len: literal.len() as u32,
            block,
            last: u32::MAX >> ((BLOCK - literal.len() % BLOCK) % BLOCK),
            node,
            slot,
        }
    }

    /// Reads the slot, if the text has from `at` on what it should. The offset after it.
    #[inline(always)]
    fn fit(&self, blocks: &[Block], text: &[u8], at: usize, slot: &mut Node) -> Option<usize> {
        let there = at + self.len as usize;
        let mine = blocks.get(self.block as usize..)?.as_flattened();
        let mine = mine.get(..self.len as usize)?;
        if !same_bytes(text.get(at..there)?, mine) {
            return None;
        }
        match self.slot {
            Slot::End => Some(there),
            Slot::Number => any_number(text, there, slot),
            Slot::String => match plain_text_end(text, there) {
                (stop, true) if text.get(stop) == Some(&b'"') => {
                    *slot = node(there - 1, stop + 1, 0);
                    Some(stop + 1)
                }
                (stop, _) => any_string(text, there, stop, slot),
            },
        }
    }
}

#[inline(always)]
fn node(start: usize, end: usize, info: u32) -> Node {
    Node {
        start: start as u32,
        end: end as u32,
        skip: 1,
        info,
    }
}

/// The offset after the number at `at`.
#[inline(never)]
fn any_number(text: &[u8], at: usize, slot: &mut Node) -> Option<usize> {
    text.get(at)?;
    let (end, info) = parse::number::<false>(text, at).ok()?;
    *slot = node(at, end, info);
    Some(end)
}

/// The offset after the string whose quote is before `at` and whose first plain stretch ends at `stop`.
#[inline(never)]
fn any_string(text: &[u8], at: usize, stop: usize, slot: &mut Node) -> Option<usize> {
    let (end, info) = match text.get(stop)? {
        b'"' => (stop + 1, 0),
        _ => string_rest::<false>(text, stop).ok()?,
    };
    utf8(&text[at..end - 1]).ok()?;
    *slot = node(at - 1, end, info);
    Some(end)
}

/// The end of a container with slots in it.
#[derive(Debug)]
struct Close {
    node: u32,
    /// The last slot before its bracket.
    slot: u32,
    /// How far that is away.
    distance: u32,
}

/// Whether the value that starts here is a string (true) or a number (false); None: neither.
fn is_string(text: &[u8], start: usize) -> Option<bool> {
    match text[start] {
        b'"' => Some(true),
        b'-' | b'0'..=b'9' => Some(false),
        _ => None,
    }
}

/// What it took, about, to find at this step that a text does not fit: as [`BUDGET`] counts.
#[cold]
fn cost(step: usize, at: usize) -> i32 {
    (60 * (step + 1) + at / 2).min(BUDGET as usize) as i32
}

/// Puts the strings and numbers of a text that are no keys into `values`, and gives a hash of the others: of keys the
/// length and the last bytes, of containers the number of nodes.
fn values(text: &[u8], nodes: &[Node], values: &mut Vec<Leaf>) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = nodes.len() as u64;
    values.clear();
    for (node, span) in (0..).zip(nodes) {
        let (start, end) = (span.start as usize, span.end as usize);
        let is_key = || text.get(skip_blanks(text, end)) == Some(&b':');
        let word = match text[start] {
            b'"' if is_key() => match text[start..end].last_chunk() {
                Some(last) => u64::from_le_bytes(*last).rotate_left(8) ^ (end - start) as u64,
                None => text[start + 1..end]
                    .iter()
                    .fold(0, |word, &byte| word << 8 | u64::from(byte)),
            },
            first @ (b'"' | b'-' | b'0'..=b'9') => {
                values.push(Leaf {
                    node,
                    is_slot: false,
                });
                u64::from(first == b'"')
            }
            first => u64::from(first) << 32 | u64::from(span.skip),
        };
        hash = (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    }
    hash
}

impl Template {
    /// A template that only the text itself fits.
    fn new(text: &str, nodes: &[Node], values: &[Leaf], frame: u64) -> Option<Template> {
        Some(Template {
            pattern: Arc::new(Pattern::new(Shape(number()?), text, nodes, values)?),
            values: values.into(),
            frame,
            next: 0,
            used: 0,
        })
    }

    fn bytes(&self) -> usize {
        let Pattern { text, learned, .. } = &*self.pattern;
        2 * text.len() + size_of_val(&**learned)
    }

    /// Whether a text with these nodes is of this shape.
    fn has_shape(&self, text: &[u8], nodes: &[Node]) -> bool {
        let pattern = &*self.pattern;
        if nodes.len() != pattern.learned.len() {
            return false;
        }
        // Nodes have the same numbers as long as the texts between the values are the same.
        let known_text = pattern.text.as_bytes();
        let (mut mine, mut theirs) = (0, 0);
        for leaf in &self.values {
            let at = leaf.node as usize;
            let (known, node) = (&pattern.learned[at], &nodes[at]);
            let (start, there) = (known.start as usize, node.start as usize);
            let same_kind = is_string(known_text, start) == is_string(text, there);
            if !same_kind || known_text.get(mine..start) != text.get(theirs..there) {
                return false;
            }
            (mine, theirs) = (known.end as usize, node.end as usize);
        }
        known_text[mine..] == text[theirs..]
    }

    /// Makes slots of the values in which the text, of this shape, differs. How many slots were cut for that.
    fn learn(&mut self, text: &str, nodes: &[Node]) -> usize {
        let mut changed = false;
        for leaf in &mut self.values {
            let at = leaf.node as usize;
            let (known, node) = (&self.pattern.learned[at], &nodes[at]);
            let known = &self.pattern.text[known.start as usize..known.end as usize];
            if !leaf.is_slot && known != &text[node.start as usize..node.end as usize] {
                leaf.is_slot = true;
                changed = true;
            }
        }
        if changed
            && let Some(pattern) = Pattern::new(self.pattern.shape, text, nodes, &self.values)
        {
            self.pattern = Arc::new(pattern);
            return self.pattern.steps.len() - 1;
        }
        0
    }
}

impl Pattern {
    /// The text cut at those of its values that are slots.
    fn new(shape: Shape, text: &str, nodes: &[Node], values: &[Leaf]) -> Option<Pattern> {
        let bytes = text.as_bytes();
        let slots = values.iter().filter(|leaf| leaf.is_slot);
        let most = slots.clone().count() + 1;
        let mut steps: Vec<Step> = Vec::with_capacity(most);
        let mut blocks = Vec::with_capacity(most + bytes.len() / BLOCK);
        let mut parts = vec![Part::Constant; nodes.len()];
        let mut start = 0;
        for leaf in slots {
            let node = &nodes[leaf.node as usize];
            let (end, slot) = match bytes[node.start as usize] {
                b'"' => (node.start as usize + 1, Slot::String),
                _ => (node.start as usize, Slot::Number),
            };
            if start == end {
                return None; // can't be: between two values there is something
            }
            parts[leaf.node as usize] = Part::Slot(steps.len() as u8);
            steps.push(Step::new(&bytes[start..end], leaf.node, slot, &mut blocks));
            start = node.end as usize;
        }
        let mut closes = Vec::new();
        for (at, node) in (0..).zip(nodes) {
            if let b'{' | b'[' = bytes[node.start as usize] {
                let end = |step: &Step| nodes[step.node as usize].end;
                let before = steps.partition_point(|step| end(step) < node.end);
                if let Some(slot) = before.checked_sub(1)
                    && end(&steps[slot]) > node.start
                {
                    parts[at as usize] = Part::Changing;
                    closes.push(Close {
                        node: at,
                        slot: slot as u32,
                        distance: node.end - end(&steps[slot]),
                    });
                }
            }
        }
        steps.push(Step::new(&bytes[start..], 0, Slot::End, &mut blocks));
        let least = steps
            .iter()
            .map(|step| step.len as usize + 1)
            .sum::<usize>()
            - 1;
        Some(Pattern {
            number: number()?.get(),
            shape,
            text: text.into(),
            learned: nodes.into(),
            parts: parts.into(),
            steps: steps.into(),
            blocks: blocks.into(),
            closes,
            least,
            saved: SAVED * nodes.len() as i32,
        })
    }

    /// A number that no other pattern and no shape of the process has.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Nodes that are slots, in order.
    pub fn slots(&self) -> impl Iterator<Item = Spot> {
        let slots = self.steps.iter().filter(|step| step.slot != Slot::End);
        slots.map(|step| Spot(step.node))
    }

    /// Where [`Value::path`] leads to, in all texts that fit.
    pub(super) fn spot(&self, path: &[&str]) -> Spot {
        let root = self.learned(0);
        let found = root.path(path);
        found.map_or(Spot::NOWHERE, |value| root.spot_of(value))
    }

    /// The place of the slot that is there.
    pub(super) fn slot(&self, spot: Spot) -> Option<u8> {
        match self.parts.get(spot.0 as usize)? {
            Part::Slot(place) => Some(*place),
            Part::Constant | Part::Changing => None,
        }
    }

    /// The value that is the same in all texts that fit; None if it is not, or if it is nowhere.
    pub fn constant(&self, spot: Spot) -> Option<Value<'_>> {
        let at = spot.0 as usize;
        let is_constant = spot.is_there() && self.parts.get(at) == Some(&Part::Constant);
        is_constant.then(|| self.learned(at))
    }

    #[inline(always)]
    fn learned(&self, at: usize) -> Value<'_> {
        Value {
            text: &self.text,
            nodes: &self.learned[at..],
        }
    }

    /// Reads the text into `slots`, and says where it ends. If it does not fit, or is no JSON, the [`cost`] of finding
    /// that.
    #[inline(always)]
    fn fit(
        &self,
        text: &[u8],
        slots: &mut Slots,
        ends: impl Fn(usize) -> bool,
    ) -> Result<usize, i32> {
        if text.len() < self.least {
            return Err(cost(0, 0)); // a line that goes on in another chunk
        }
        #[cfg(target_arch = "x86_64")]
        let result = match std::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            true => unsafe { self.fit_wide(text, slots) },
            false => self.fit_plain(text, slots),
        };
        #[cfg(not(target_arch = "x86_64"))]
        let result = self.fit_plain(text, slots);
        match result {
            Ok(end) if ends(end) => Ok(end),
            Ok(end) => Err(cost(self.steps.len(), end)),
            Err((step, at)) => Err(cost(step, at)),
        }
    }

    /// The offset after what fits; or else the place of the step that does not, and where.
    fn fit_plain(&self, text: &[u8], slots: &mut Slots) -> Result<usize, (usize, usize)> {
        let mut at = 0;
        for (number, (step, slot)) in self.steps.iter().zip(slots).enumerate() {
            at = step.fit(&self.blocks, text, at, slot).ok_or((number, at))?;
        }
        Ok(at)
    }

    /// Makes the nodes of the text with these slots.
    pub(super) fn unfold(&self, slots: &[Node], nodes: &mut Vec<Node>) {
        nodes.clear();
        nodes.reserve(self.learned.len());
        let (mut from, mut by) = (0, 0);
        // The ends of containers move wrongly here, and are set below.
        for (step, slot) in self.steps.iter().zip(slots) {
            let at = step.node as usize;
            let moved = |node: &Node| node.moved(by);
            nodes.extend(self.learned[from..at].iter().map(moved));
            nodes.push(*slot);
            (from, by) = (at + 1, slot.end.wrapping_sub(self.learned[at].end));
        }
        let moved = |node: &Node| node.moved(by);
        nodes.extend(self.learned[from..].iter().map(moved));
        for close in &self.closes {
            nodes[close.node as usize].end = slots[close.slot as usize].end + close.distance;
        }
    }

    /// All nodes of the text with these slots.
    pub(super) fn nodes(&self, slots: &[Node]) -> Box<[Node]> {
        let mut nodes = Vec::new();
        self.unfold(slots, &mut nodes);
        nodes.into()
    }
}
