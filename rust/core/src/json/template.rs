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
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::decoded::Recalled;
use super::parse::{self, skip_blanks, string_rest};
use super::paths::Spot;
use super::scan::{plain_text_end, same_bytes};
use super::tape::{LONE, Node};
use super::value::{Doc, Value};
use super::{JsonError, Tape, utf8};

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
/// What may be spent on trying and learning before there is a hit, about in instructions. Every text earns some of it
/// back; an irregular stream soon uses it up, and then costs little more than the parser. Little, as a short stream has
/// no use for what it learns.
const FIRST_BUDGET: i32 = 1 << 16;
/// What may be saved up.
const BUDGET: i32 = 1 << 20;
/// Never so deep in debt that a stream that has turned regular would not get out.
const DEBT: i32 = BUDGET / 16;
/// Earned for each node: less than a fifth of what the parser takes for one, and less than what a hit saves.
const EARNED: i32 = 16;
const SAVED: i32 = 32;
/// Spent on each node of a text to find its shape, on a shape that is new, and on each slot that is cut.
const LOOKING: i32 = 120;
const LEARNING: i32 = 3000;
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
    pub(super) recalled: Recalled,
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
            recalled: Recalled::default(),
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
        match self.templates.find(text) {
            Some((at, fit)) => self.templates.hit(at, fit, text),
            None => self.miss(text),
        }
    }

    /// What the templates take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.templates.list.iter().map(Template::bytes).sum()
    }

    #[inline(never)]
    fn miss<'a>(&'a mut self, text: &'a [u8]) -> Result<Doc<'a>, JsonError> {
        let doc = self.tape.parse(text)?;
        if self.learns {
            let nodes = doc.root.own_nodes();
            self.templates.earn(EARNED, nodes.len());
            if text.len() <= MAX_TEXT && !doc.lone {
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
    /// Of the text at hand.
    slots: [Node; MAX_VALUES],
}

/// What the slots of a text that fits have in them, all in all.
#[derive(Clone, Copy, Default)]
struct Fit {
    lone: bool,
    /// Some text may be other than ASCII.
    not_ascii: bool,
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
            slots: [Node::default(); MAX_VALUES],
        }
    }
}

impl Templates {
    /// The place of a template that the text fits: the one that came next the last time, else one of the last used.
    #[inline]
    fn find(&mut self, text: &[u8]) -> Option<(usize, Fit)> {
        self.may_spend = self.budget >= 0;
        let expected = self.list.get(self.last)?.next;
        if !self.may_spend {
            return None;
        }
        if let Some(template) = self.list.get(expected) {
            match template.pattern.fit(text, &mut self.slots) {
                Ok(fit) => return Some((expected, fit)),
                Err(cost) => self.spend(cost),
            }
        }
        for place in 0..self.recent.len() {
            let at = self.recent[place];
            if at == expected {
                continue;
            }
            if let Some(template) = self.list.get(at) {
                match template.pattern.fit(text, &mut self.slots) {
                    Ok(fit) => return Some((at, fit)),
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
    fn hit<'a>(&'a mut self, at: usize, fit: Fit, text: &'a [u8]) -> Result<Doc<'a>, JsonError> {
        self.used(at);
        let text = if fit.not_ascii {
            match utf8(text) {
                Ok(text) => text,
                Err(error) => {
                    self.spend(cost(self.list[at].pattern.steps.len(), text.len()));
                    return Err(error);
                }
            }
        } else {
            // SAFETY: between its slots the text equals one that was UTF-8 when it was learned, and the slots, whole
            // numbers and strings between quotes, are ASCII.
            unsafe { std::str::from_utf8_unchecked(text) }
        };
        self.earn(SAVED, self.list[at].nodes.len());
        let Template { pattern, nodes, .. } = &mut self.list[at];
        let slots = &self.slots[..pattern.steps.len()];
        pattern.move_nodes(nodes, slots);
        Ok(Doc {
            root: Value { text, nodes },
            lone: fit.lone,
            fitted: Some(Fitted { pattern, slots }),
        })
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

    fn put_first(&mut self, at: usize) {
        self.recent.retain(|&other| other != at);
        self.recent.truncate(TRIES - 1);
        self.recent.insert(0, at);
    }

    /// Learns from a text that the parser had to read.
    fn learn(&mut self, text: &[u8], nodes: &[Node]) {
        if !self.may_spend || nodes.len() > MAX_NODES || text.first() != Some(&b'{') {
            return;
        }
        self.spend(LOOKING * nodes.len() as i32);
        let (values, frame) = values(text, nodes);
        if values.len() > MAX_VALUES {
            return;
        }
        let is_known = |known: &Template| known.frame == frame && known.has_shape(text, nodes);
        let at = match self.list.iter().position(is_known) {
            Some(at) => {
                let cuts = self.list[at].learn(text, nodes);
                self.spend(CUTTING * cuts as i32);
                at
            }
            None => {
                self.spend(LEARNING);
                match Template::new(text, nodes, values, frame) {
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
    values: Vec<Leaf>,
    /// Of its shape; see [`values`].
    frame: u64,
    /// The nodes of the last text that fitted.
    nodes: Vec<Node>,
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
    text: Box<[u8]>,
    learned: Box<[Node]>,
    /// One for each slot.
    steps: Vec<Step>,
    /// What stands after the last slot.
    tail: Box<[u8]>,
    closes: Vec<Close>,
}

/// That a text fits a pattern, and how.
#[derive(Clone, Copy, Debug)]
pub struct Fitted<'a> {
    pub(super) pattern: &'a Arc<Pattern>,
    /// The nodes of what it has in the slots.
    pub(super) slots: &'a [Node],
}

impl Fitted<'_> {
    #[inline]
    pub fn shape(&self) -> Shape {
        self.pattern.shape
    }
}

/// The node of a string or number that is no key.
#[derive(Debug)]
struct Leaf {
    node: u32,
    is_slot: bool,
}

/// A slot and what stands before it.
#[derive(Debug)]
struct Step {
    /// The opening quote of a string is part of it.
    literal: Box<[u8]>,
    node: u32,
    /// Nodes up to the next slot move with the end of this one.
    upto: u32,
    is_string: bool,
}

impl Step {
    /// What the text has in the slot, if it has from `at` on what it should.
    #[inline(always)]
    fn fit(&self, text: &[u8], at: usize, fit: &mut Fit) -> Option<Node> {
        let at = literal(&self.literal, text, at)?;
        let start = at - self.is_string as usize;
        let (end, info) = if self.is_string {
            let (stop, is_ascii) = plain_text_end(text, at);
            fit.not_ascii |= !is_ascii;
            match text.get(stop)? {
                b'"' => (stop + 1, 0),
                _ => {
                    let (end, info) = string_rest::<false>(text, stop).ok()?;
                    fit.not_ascii = true; // not looked at
                    fit.lone |= info & LONE != 0;
                    (end, info)
                }
            }
        } else {
            text.get(at)?;
            parse::number::<false>(text, at).ok()?
        };
        Some(Node {
            start: start as u32,
            end: end as u32,
            skip: 1,
            info,
        })
    }
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

/// The offset after the literal, if it stands at `at`.
#[inline(always)]
fn literal(literal: &[u8], text: &[u8], at: usize) -> Option<usize> {
    let there = at + literal.len();
    same_bytes(text.get(at..there)?, literal).then_some(there)
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

/// The strings and numbers of a text that are no keys, and a hash of what is between them.
fn values(text: &[u8], nodes: &[Node]) -> (Vec<Leaf>, u64) {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = nodes.len() as u64;
    let mut add = |word: u64| hash = (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    let mut values = Vec::new();
    let mut at = 0;
    let mut add_until = |start: usize, end: usize| {
        let (words, rest) = text[at..start].as_chunks::<8>();
        words.iter().for_each(|&word| add(u64::from_le_bytes(word)));
        let rest = rest.iter().fold(1, |sum, &byte| sum << 8 | u64::from(byte));
        add(rest);
        at = end;
    };
    for (node, span) in (0..).zip(nodes) {
        let (start, end) = (span.start as usize, span.end as usize);
        let is_value = match is_string(text, start) {
            Some(true) => text.get(skip_blanks(text, end)) != Some(&b':'),
            Some(false) => true,
            None => false,
        };
        if is_value {
            add_until(start, end);
            values.push(Leaf {
                node,
                is_slot: false,
            });
        }
    }
    add_until(text.len(), text.len());
    (values, hash)
}

impl Template {
    /// A template that only the text itself fits.
    fn new(text: &[u8], nodes: &[Node], values: Vec<Leaf>, frame: u64) -> Option<Template> {
        Some(Template {
            pattern: Arc::new(Pattern::new(Shape(number()?), text, nodes, &values)?),
            values,
            frame,
            nodes: nodes.to_vec(),
            next: 0,
            used: 0,
        })
    }

    fn bytes(&self) -> usize {
        let Pattern { text, learned, .. } = &*self.pattern;
        2 * (text.len() + size_of_val(&**learned))
    }

    /// Whether a text with these nodes is of this shape.
    fn has_shape(&self, text: &[u8], nodes: &[Node]) -> bool {
        let pattern = &*self.pattern;
        if nodes.len() != pattern.learned.len() {
            return false;
        }
        // Nodes have the same numbers as long as the texts between the values are the same.
        let (mut mine, mut theirs) = (0, 0);
        for leaf in &self.values {
            let at = leaf.node as usize;
            let (known, node) = (&pattern.learned[at], &nodes[at]);
            let (start, there) = (known.start as usize, node.start as usize);
            let same_kind = is_string(&pattern.text, start) == is_string(text, there);
            if !same_kind || pattern.text.get(mine..start) != text.get(theirs..there) {
                return false;
            }
            (mine, theirs) = (known.end as usize, node.end as usize);
        }
        pattern.text[mine..] == text[theirs..]
    }

    /// Makes slots of the values in which the text, of this shape, differs. How many slots were cut for that.
    fn learn(&mut self, text: &[u8], nodes: &[Node]) -> usize {
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
            self.nodes.copy_from_slice(nodes);
            self.pattern = Arc::new(pattern);
            return self.pattern.steps.len();
        }
        0
    }
}

impl Pattern {
    /// The text cut at those of its values that are slots.
    fn new(shape: Shape, text: &[u8], nodes: &[Node], values: &[Leaf]) -> Option<Pattern> {
        let mut steps: Vec<Step> = Vec::new();
        let mut start = 0;
        for leaf in values.iter().filter(|leaf| leaf.is_slot) {
            let node = &nodes[leaf.node as usize];
            let is_string = text[node.start as usize] == b'"';
            if let Some(before) = steps.last_mut() {
                before.upto = leaf.node;
            }
            steps.push(Step {
                literal: text[start..node.start as usize + is_string as usize].into(),
                node: leaf.node,
                upto: nodes.len() as u32,
                is_string,
            });
            start = node.end as usize;
        }
        let mut closes = Vec::new();
        for (at, node) in (0..).zip(nodes) {
            if let b'{' | b'[' = text[node.start as usize] {
                let end = |step: &Step| nodes[step.node as usize].end;
                let before = steps.iter().take_while(|step| end(step) < node.end);
                if let Some(slot) = before.count().checked_sub(1) {
                    closes.push(Close {
                        node: at,
                        slot: slot as u32,
                        distance: node.end - end(&steps[slot]),
                    });
                }
            }
        }
        Some(Pattern {
            number: number()?.get(),
            shape,
            text: text.into(),
            learned: nodes.into(),
            steps,
            tail: text[start..].into(),
            closes,
        })
    }

    /// A number that no other pattern and no shape of the process has.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Nodes that are slots, in order.
    pub fn slots(&self) -> impl Iterator<Item = Spot> {
        self.steps.iter().map(|step| Spot(step.node))
    }

    /// Reads the text into `slots`. If it does not fit, or is no JSON, the [`cost`] of finding that.
    #[inline]
    fn fit(&self, text: &[u8], slots: &mut [Node; MAX_VALUES]) -> Result<Fit, i32> {
        let mut at = 0;
        let mut fit = Fit::default();
        for (number, (step, slot)) in self.steps.iter().zip(slots).enumerate() {
            match step.fit(text, at, &mut fit) {
                Some(found) => *slot = found,
                None => return Err(cost(number, at)),
            }
            at = slot.end as usize;
        }
        match literal(&self.tail, text, at) {
            Some(end) if end == text.len() && end < u32::MAX as usize => Ok(fit),
            _ => Err(cost(self.steps.len(), at)),
        }
    }

    /// The nodes of the text that it was learned from.
    pub(super) fn learned(&self) -> &[Node] {
        &self.learned
    }

    /// Moves the nodes of a text that fits to where they are in the text with these slots.
    #[inline]
    pub(super) fn move_nodes(&self, nodes: &mut [Node], slots: &[Node]) {
        for (step, slot) in self.steps.iter().zip(slots) {
            let node = &mut nodes[step.node as usize];
            let shift = slot.end.wrapping_sub(node.end);
            *node = *slot;
            if shift != 0 {
                // The ends of containers move wrongly here, and are set below.
                for node in &mut nodes[step.node as usize + 1..step.upto as usize] {
                    node.shift(shift);
                }
            }
        }
        for close in &self.closes {
            nodes[close.node as usize].end = slots[close.slot as usize].end + close.distance;
        }
    }

    /// All nodes of the text with these slots.
    pub(super) fn nodes(&self, slots: &[Node]) -> Box<[Node]> {
        let mut nodes = self.learned.clone();
        self.move_nodes(&mut nodes, slots);
        nodes
    }
}
