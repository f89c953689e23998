//! The Emitter: mappers tell it what the wire says, it makes the events.
//!
//! It keeps what every dialect needs alike, so that no mapper has to: text is never doubled (deltas, closing blocks and
//! repeats are matched here), surrogate halves that a harness split over two deltas are joined, tool results find their
//! call even if they come first or if ids are used again, and everything emitted can be encoded as UTF-8.
//!
//! Words: a *thread* is the main agent (None) or one sub-agent (the id of the call that delegated). A *block* is one run
//! of text of one kind in one thread; its texts in order are what `run.texts` shows. An *attempt* is everything a
//! thread said since the last [`commit`](Emitter::commit): a retry can take it back.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::data::Data;
use crate::dialect::Dialect;
use crate::event::{
    Chunk, Content, Event, Facts, Image, Item, Kind, Location, Place, PlanEntry, Sink, Stamp,
    State, Tokens, ToolCall, ToolCallUpdate, Update as EventUpdate, Usage,
};
use crate::json::{Str, Text};
use crate::tool;

/// Names a block while it is open: a text, an index, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'k> {
    name: &'k str,
    index: i64,
}

impl<'k> Key<'k> {
    pub fn new(name: &'k str, index: i64) -> Self {
        Key { name, index }
    }
}

impl<'k> From<&'k str> for Key<'k> {
    fn from(name: &'k str) -> Self {
        Key { name, index: 0 }
    }
}

impl From<i64> for Key<'_> {
    fn from(index: i64) -> Self {
        Key { name: "", index }
    }
}

/// Streamed text: as on the wire, where its ends may be halves of surrogate pairs, or decoded.
pub enum Delta<'a> {
    Wire(Str<'a>),
    Text(Text<'a>),
}

impl<'a> From<Str<'a>> for Delta<'a> {
    fn from(text: Str<'a>) -> Self {
        Delta::Wire(text)
    }
}

impl<'a> From<Text<'a>> for Delta<'a> {
    fn from(text: Text<'a>) -> Self {
        Delta::Text(text)
    }
}

impl<'a> From<&'a str> for Delta<'a> {
    fn from(text: &'a str) -> Self {
        Delta::Text(text.into())
    }
}

#[derive(Deserialize, Serialize)]
struct Block {
    number: u32,
    /// See [`Emitter::whole_in_order`].
    order: Option<String>,
    /// As emitted.
    text: String,
    /// A high surrogate that waits for its low half, with the stamp of its line.
    half: Option<(u16, Stamp<'static>)>,
    /// A chunk of it was emitted.
    shown: bool,
}

/// The blocks of one thread and kind that can still change, in order.
#[derive(Default, Deserialize, Serialize)]
struct TextLog {
    blocks: Vec<Block>,
    open: Vec<(Box<str>, i64, usize)>,
}

impl TextLog {
    #[inline]
    fn place(&self, key: Key<'_>) -> Option<usize> {
        let mut open = self.open.iter();
        open.position(|(name, index, _)| *index == key.index && is_same(name, key.name))
    }

    #[inline]
    fn find(&self, key: Key<'_>) -> Option<usize> {
        Some(self.open[self.place(key)?].2)
    }
}

/// Whether two names are equal. Of two that are empty nothing is read: an empty `str` points nowhere, and some
/// processors take hundreds of cycles to find that a read of no bytes from there is none (`memcmp` with AVX-512 masks:
/// a fifth of the time that a stream of deltas took).
#[inline]
fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

/// Where a block is, as long as nothing else is said.
#[derive(Clone, Copy, Debug)]
pub struct BlockAt {
    thread: usize,
    kind: Kind,
    at: usize,
}

/// Key of the block that forwarded chunks go on with.
const FORWARDED: &str = "forwarded";

/// How the ids begin of calls that the wire gives none.
pub const NAMELESS: &str = "tool:";

/// More room is not kept.
const MAX_SPARE: usize = 1 << 20;

/// How many characters the main agent has said, by kind.
pub type Mark = [usize; 3];

const TEXT_KINDS: [Kind; 3] = [Kind::Message, Kind::Thought, Kind::User];

#[derive(Default, Deserialize, Serialize)]
struct Thread {
    /// By kind, in the order of [`TEXT_KINDS`].
    logs: [TextLog; 3],
    /// Keys of the calls of the attempt.
    attempt: Vec<String>,
}

/// One tool call: its number, and how far the wire has told of it.
#[derive(Deserialize, Serialize)]
struct CallState {
    /// Its id, where it has a key of its own.
    id: Option<Box<str>>,
    number: u32,
    thread: Option<Box<str>>,
    turn: u32,
    /// A `tool_call` event was emitted.
    announced: bool,
    /// Its result was seen.
    closed: bool,
    status: Option<Cow<'static, str>>,
    /// Further calls with its id in the same message, whose keys are numbered.
    twins: u32,
}

/// What the emitter remembers of the stream.
#[derive(Deserialize, Serialize)]
pub struct Memory {
    pub(crate) dialect: &'static Dialect,
    threads: Vec<Thread>,
    main_thread: Option<usize>,
    /// Of the other threads, by name.
    thread_numbers: HashMap<Box<str>, usize>,
    block_count: u32,
    /// By key: the id, unless the mapper gives one.
    calls: HashMap<String, CallState>,
    call_count: u32,
    turn: u32,
    /// Counted from the first call of [`Emitter::mark`] on.
    told: Option<Mark>,
    usages: HashMap<String, Box<[u8]>>,
    session: Vec<(Cow<'static, str>, String)>,
    /// A turn or a run has ended, and none begun since.
    over: bool,
    /// The start of the next turn was told, with the first record of its process.
    told_start: bool,
    /// Of the last record.
    place: Place,
    /// Room for the text of the next block: a text that grows costs more where memory is new.
    #[serde(skip)]
    spare: String,
}

impl Memory {
    pub fn new(dialect: &'static Dialect) -> Self {
        Memory {
            dialect,
            threads: Vec::new(),
            main_thread: None,
            thread_numbers: HashMap::new(),
            block_count: 0,
            calls: HashMap::new(),
            call_count: 0,
            turn: 0,
            told: None,
            usages: HashMap::new(),
            session: Vec::new(),
            over: false,
            told_start: false,
            place: Place::default(),
            spare: String::new(),
        }
    }

    /// Whether a restored memory is one that can be, with what the reducer has room for.
    pub(crate) fn is_sound(&self, room: (usize, usize)) -> bool {
        let (blocks, calls) = self.counts();
        let mut threads = self.main_thread.iter().chain(self.thread_numbers.values());
        let mut logs = self.threads.iter().flat_map(|thread| &thread.logs);
        let log_is_sound = |log: &TextLog| {
            log.open.iter().all(|(_, _, at)| *at < log.blocks.len())
                && log.blocks.iter().all(|block| block.number <= blocks)
        };
        threads.all(|number| *number < self.threads.len())
            && logs.all(log_is_sound)
            && self.calls.values().all(|call| call.number <= calls)
            && (blocks as usize) < room.0
            && (calls as usize) < room.1
    }

    /// How many blocks and calls were numbered.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.block_count, self.call_count)
    }

    /// Of the last record: where what the end of the stream brings is said to stand.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The block with this number, if streamed text that comes next need only be put behind it: it is the last of its
    /// thread and kind, and no half of a character waits in it.
    pub(crate) fn last_block(&self, kind: Kind, number: u32) -> Option<BlockAt> {
        let mut logs = self
            .threads
            .iter()
            .map(|thread| &thread.logs[kind as usize]);
        let is_mine = |log: &TextLog| log.blocks.last().is_some_and(|last| last.number == number);
        let thread = logs.position(is_mine)?;
        let blocks = &self.threads[thread].logs[kind as usize].blocks;
        let last = blocks
            .last()
            .filter(|last| last.shown && last.half.is_none());
        last.map(|_| BlockAt {
            thread,
            kind,
            at: blocks.len() - 1,
        })
    }

    /// The text of that block.
    #[inline]
    pub(crate) fn text_of(&mut self, block: BlockAt) -> Option<&mut String> {
        let BlockAt { thread, kind, at } = block;
        let log = &mut self.threads.get_mut(thread)?.logs[kind as usize];
        Some(&mut log.blocks.get_mut(at)?.text)
    }

    /// Notes where the last record stands.
    pub(crate) fn go_to(&mut self, place: Place) {
        self.place = place;
    }

    /// Forgets the first blocks of a thread and kind.
    fn forget(&mut self, thread: usize, kind: Kind, count: usize) {
        let log = &mut self.threads[thread].logs[kind as usize];
        for block in log.blocks.drain(..count) {
            if (self.spare.capacity()..MAX_SPARE).contains(&block.text.capacity()) {
                self.spare = block.text;
            }
        }
    }

    /// What is counted of a text of the main agent's, if it is.
    fn told(&mut self, kind: Kind, stamp: &Stamp<'_>) -> Option<&mut usize> {
        let told = self.told.as_mut()?;
        stamp.thread().is_none().then(|| &mut told[kind as usize])
    }

    #[inline]
    fn thread(&mut self, name: Option<&str>) -> usize {
        let known = match name {
            None => self.main_thread,
            Some(name) => self.thread_numbers.get(name).copied(),
        };
        known.unwrap_or_else(|| self.new_thread(name))
    }

    #[cold]
    fn new_thread(&mut self, name: Option<&str>) -> usize {
        let number = self.threads.len();
        self.threads.push(Thread::default());
        match name {
            None => self.main_thread = Some(number),
            Some(name) => {
                self.thread_numbers.insert(name.into(), number);
            }
        }
        number
    }
}

/// Turns what mappers say of one record into events for a sink.
pub struct Emitter<'s> {
    memory: &'s mut Memory,
    sink: &'s mut dyn Sink,
    place: Place,
    /// A text of the record could not be shown as it was.
    lossy: bool,
}

/// A tool call as a mapper tells it. Kind, title, locations and diffs come from the tool table unless given.
pub struct Call<'a> {
    pub id: Text<'a>,
    /// Tells calls apart where their ids alone do not: sub-agents that number their own from 0. See [`scoped`].
    pub key: Option<String>,
    pub name: Option<Text<'a>>,
    pub input: Data<'a>,
    pub status: &'static str,
    pub kind: Option<&'static str>,
    pub title: Option<Text<'a>>,
    pub content: Option<Vec<Item<'a>>>,
    pub locations: Option<Vec<Location<'a>>>,
    /// A new call, even if one with this id is still open in this turn.
    pub again: bool,
    /// Of a harness that prints each call once: one with an id that is still open in this turn is another call, to
    /// which the model gave the same id. Its result is the next one with that id.
    pub twin: bool,
    pub started_at: Option<Text<'a>>,
    /// The content is about the call, not its result.
    pub no_result: bool,
    /// Places the call in the run, as [`Emitter::whole_in_order`] does blocks.
    pub order: Option<Text<'a>>,
}

impl<'a> Call<'a> {
    pub fn new(
        id: impl Into<Text<'a>>,
        name: Option<Text<'a>>,
        input: impl Into<Data<'a>>,
    ) -> Self {
        Call {
            id: id.into(),
            key: None,
            name,
            input: input.into(),
            status: "pending",
            kind: None,
            title: None,
            content: None,
            locations: None,
            again: false,
            twin: false,
            started_at: None,
            no_result: false,
            order: None,
        }
    }
}

/// How a call goes on or ended, as a mapper tells it.
pub struct Update<'a> {
    pub id: Text<'a>,
    /// As [`Call::key`].
    pub key: Option<String>,
    pub status: Option<&'static str>,
    /// Whether this is the result; None: a terminal status says so.
    pub done: Option<bool>,
    pub title: Option<Text<'a>>,
    pub content: Vec<Item<'a>>,
    pub locations: Vec<Location<'a>>,
    pub raw_output: Option<Data<'a>>,
    /// Told even if the call is closed.
    pub again: bool,
    pub facts: Facts<'a>,
}

impl<'a> Update<'a> {
    pub fn new(id: impl Into<Text<'a>>, status: Option<&'static str>) -> Self {
        Update {
            id: id.into(),
            key: None,
            status,
            done: None,
            title: None,
            content: Vec::new(),
            locations: Vec::new(),
            raw_output: None,
            again: false,
            facts: Facts::default(),
        }
    }
}

impl<'s> Emitter<'s> {
    /// An emitter for the record at that place.
    pub fn new(memory: &'s mut Memory, sink: &'s mut dyn Sink, place: Place) -> Self {
        memory.place = place;
        Emitter {
            memory,
            sink,
            place,
            lossy: false,
        }
    }

    /// Whether a text of the record could not be shown as it was.
    pub fn is_lossy(&self) -> bool {
        self.lossy
    }

    /// The text as it can be encoded; marks the record lossy if that changed it.
    pub fn clean<'a>(&mut self, text: Text<'a>) -> Cow<'a, str> {
        self.lossy |= text.is_lossy();
        text.into_cow()
    }

    // ---------------------------------------------------------------- text

    /// Adds streamed text to the open block `key` of its thread and kind; opens it if there is none.
    pub fn delta<'a, 'k>(
        &mut self,
        kind: Kind,
        key: impl Into<Key<'k>>,
        text: impl Into<Delta<'a>>,
        stamp: &Stamp<'_>,
    ) {
        let (thread, at) = self.open(kind, key.into(), stamp);
        let text = text.into();
        let blocks = &mut self.log(thread, kind).blocks;
        let is_last = at + 1 == blocks.len();
        let block = &mut blocks[at];
        if let Delta::Wire(wire) = text
            && is_last
            && block.shown
            && block.half.is_none()
            && !wire.has_escapes()
            && !wire.raw().is_empty()
        {
            // Nearly all streamed text: the last block goes on.
            block.text.push_str(wire.raw());
            let number = block.number;
            self.chunk(kind, number, wire.raw(), 0, stamp);
            return;
        }
        let text = match text {
            Delta::Wire(wire) if block.half.is_none() && !wire.is_lossy() => wire.lossy(),
            Delta::Wire(wire) if wire.raw().is_empty() => return,
            Delta::Wire(wire) => {
                let halves = wire.halves();
                let (joined, lossy) = join(block.half.take().map(|(high, _)| high), halves.lead);
                let text = joined.map(String::from).unwrap_or_default() + &halves.text;
                if let Some(high) = halves.trail {
                    block.half = Some((high, stamp.to_static()));
                }
                self.lossy |= lossy | halves.lossy;
                Cow::Owned(text)
            }
            Delta::Text(text) if text.is_empty() => return,
            Delta::Text(text) => {
                let waited = block.half.take().is_some();
                self.lossy |= waited | text.is_lossy();
                let text = text.into_cow();
                if waited {
                    Cow::Owned(format!("\u{fffd}{text}"))
                } else {
                    text
                }
            }
        };
        self.append(kind, thread, at, &text, stamp);
    }

    /// The whole text of block `key` by the authority: emits only what was not streamed yet.
    ///
    /// Where it contradicts what was streamed, the differing tail is taken back. It may come again (closing block, whole
    /// message): the key names the same block until [`close`](Emitter::close).
    pub fn final_text<'a, 'k>(
        &mut self,
        kind: Kind,
        key: impl Into<Key<'k>>,
        text: impl Into<Text<'a>>,
        stamp: &Stamp<'_>,
    ) {
        let (key, text) = (key.into(), text.into());
        let thread = self.memory.thread(stamp.thread());
        if text.is_empty() && self.log(thread, kind).find(key).is_none() {
            return;
        }
        let (thread, at) = self.open(kind, key, stamp);
        self.block(thread, kind, at).half = None;
        self.lossy |= text.is_lossy();
        self.replace(kind, thread, at, &text, stamp);
    }

    /// A block that comes in one piece.
    pub fn whole<'a>(&mut self, kind: Kind, text: impl Into<Text<'a>>, stamp: &Stamp<'_>) {
        self.whole_in_order(kind, text, None, stamp);
    }

    /// A block that comes in one piece, from a harness that prints blocks in another order than the model said them: it
    /// goes before those of the same attempt whose order is greater. What they said is taken back and said again.
    pub fn whole_in_order<'a>(
        &mut self,
        kind: Kind,
        text: impl Into<Text<'a>>,
        order: Option<Text<'_>>,
        stamp: &Stamp<'_>,
    ) {
        let text = text.into();
        if !text.is_empty() {
            let thread = self.memory.thread(stamp.thread());
            self.lossy |= text.is_lossy() || order.as_ref().is_some_and(Text::is_lossy);
            let at = self.new_block(thread, kind, order.map(Text::into_string));
            self.append(kind, thread, at, &text, stamp);
        }
    }

    /// A text chunk that comes as an event: it goes out as it came in, and on with the thread's block of its kind until
    /// [`commit`](Emitter::commit).
    pub fn forward(&mut self, kind: Kind, text: Str<'_>, retract: usize, stamp: &Stamp<'_>) {
        let (thread, at) = self.open(kind, FORWARDED.into(), stamp);
        let block = self.block(thread, kind, at);
        if text.raw().is_empty() {
            let number = block.number;
            self.chunk(kind, number, "", retract, stamp);
            return;
        }
        let halves = text.halves();
        let (joined, lossy) = join(block.half.take().map(|(high, _)| high), halves.lead);
        let joined = joined.map(String::from).unwrap_or_default() + &halves.text;
        if let Some(high) = halves.trail {
            block.half = Some((high, stamp.to_static()));
        }
        cut_chars(&mut block.text, retract);
        block.text.push_str(&joined);
        block.shown |= !joined.is_empty();
        let number = block.number;
        self.lossy |= lossy | halves.lossy;
        if !joined.is_empty() || retract > 0 {
            self.chunk(kind, number, &joined, retract, stamp);
        }
    }

    /// A text that is kept for later records: what it lost is told of this one.
    pub fn keep(&mut self, text: Text<'_>) -> String {
        self.note(text.is_lossy());
        text.into_string()
    }

    /// Notes whether a text of the record could not be kept as it was.
    pub fn note(&mut self, lossy: bool) {
        self.lossy |= lossy;
    }

    /// A chunk that holds an image.
    pub fn image(&mut self, kind: Kind, image: &Image<'_>, stamp: &Stamp<'_>) {
        self.memory.block_count += 1;
        self.lossy |= image.is_lossy();
        let chunk = Chunk {
            kind,
            content: Content::Image(image),
            retract: 0,
            block: self.memory.block_count,
        };
        self.emit(EventUpdate::Chunk(chunk), stamp);
    }

    /// A chunk for a content block that events have no shape for: the stamp's `extra` holds it.
    pub fn blank(&mut self, kind: Kind, stamp: &Stamp<'_>) {
        self.memory.block_count += 1;
        let number = self.memory.block_count;
        self.chunk(kind, number, "", 0, stamp);
    }

    /// The indexes of the open blocks, in the order in which they were opened.
    pub fn open_indexes(&mut self, kind: Kind, thread: Option<&str>) -> Vec<i64> {
        let thread = self.memory.thread(thread);
        let open = self.log(thread, kind).open.iter();
        open.map(|(_, index, _)| *index).collect()
    }

    /// The text so far of the open block `key`; None if no such block is open.
    pub fn streamed<'k>(
        &mut self,
        kind: Kind,
        key: impl Into<Key<'k>>,
        thread: Option<&str>,
    ) -> Option<&str> {
        let thread = self.memory.thread(thread);
        let log = self.log(thread, kind);
        let at = log.find(key.into())?;
        Some(&log.blocks[at].text)
    }

    /// Closes the open blocks of a thread: the same keys will open new ones. Their texts can still be taken back.
    pub fn close(&mut self, thread: Option<&str>) {
        let thread = self.memory.thread(thread);
        self.flush_halves(thread);
        for log in &mut self.memory.threads[thread].logs {
            log.open.clear();
        }
    }

    /// Closes the one block `key` for good, and leaves the others of its thread open (streams that interleave).
    pub fn settle<'k>(&mut self, kind: Kind, key: impl Into<Key<'k>>, thread: Option<&str>) {
        let key = key.into();
        let thread = self.memory.thread(thread);
        let log = self.log(thread, kind);
        if let Some(found) = log.place(key) {
            let (_, _, at) = log.open.remove(found);
            if let Some((_, stamp)) = self.block(thread, kind, at).half.take() {
                self.lossy = true;
                self.append(kind, thread, at, "\u{fffd}", &stamp);
            }
        }
        self.settle_first(thread, kind);
    }

    /// Forgets the blocks before the first open one: nothing can change them any more.
    fn settle_first(&mut self, thread: usize, kind: Kind) {
        let TextLog { blocks, open } = self.log(thread, kind);
        let first = open.iter().map(|(_, _, at)| *at).min();
        let first = first.unwrap_or(blocks.len());
        for (_, _, at) in open {
            *at -= first;
        }
        self.memory.forget(thread, kind, first);
    }

    /// What the thread said in blocks that are closed stands, and so do its calls; open blocks stay open.
    pub fn settle_closed(&mut self, thread: Option<&str>) {
        let thread = self.memory.thread(thread);
        for kind in TEXT_KINDS {
            self.settle_first(thread, kind);
        }
        self.memory.threads[thread].attempt.clear();
    }

    /// Closes the thread's blocks and ends its attempt: nothing said so far can be taken back any more.
    pub fn commit(&mut self, thread: Option<&str>) {
        self.close(thread);
        self.settle_closed(thread);
    }

    /// How much the main agent has said so far, for [`rewind`](Self::rewind): of what came after the first call of this.
    pub fn mark(&mut self) -> Mark {
        *self.memory.told.get_or_insert_default()
    }

    /// Takes back what the main agent said since the mark, though it was committed.
    pub fn rewind(&mut self, mark: Mark, stamp: &Stamp<'_>) {
        self.commit(None);
        let told = self.mark();
        for kind in TEXT_KINDS {
            let gone = told[kind as usize].saturating_sub(mark[kind as usize]);
            if gone > 0 {
                self.chunk(kind, 0, "", gone, stamp);
            }
        }
    }

    /// A retry takes back the attempt: its texts and thoughts go, its calls without a result have failed.
    pub fn abandon(&mut self, thread: Option<&str>, stamp: &Stamp<'_>) {
        let number = self.memory.thread(thread);
        for kind in [Kind::Message, Kind::Thought] {
            let log = self.log(number, kind);
            log.open.clear();
            let count = log.blocks.iter().map(|b| b.text.chars().count()).sum();
            self.take_back(kind, count, stamp);
            self.log(number, kind).blocks.clear();
        }
        for key in std::mem::take(&mut self.memory.threads[number].attempt) {
            let call = self.memory.calls.get(&key).filter(|call| !call.closed);
            if let Some(call) = call {
                let id = call.id.as_deref().unwrap_or(&key).to_owned();
                let update = Update {
                    key: Some(key),
                    ..Update::new(id, Some("failed"))
                };
                self.update(update, stamp);
            }
        }
    }

    /// Takes back the last `count` characters of the stamp's thread, as far as its attempt goes.
    pub fn take_back(&mut self, kind: Kind, count: usize, stamp: &Stamp<'_>) {
        let thread = self.memory.thread(stamp.thread());
        let blocks = &mut self.log(thread, kind).blocks;
        let number = blocks.last().map_or(0, |block| block.number);
        let mut taken = 0;
        for block in blocks.iter_mut().rev() {
            if taken == count {
                break;
            }
            block.half = None;
            taken += cut_chars(&mut block.text, count - taken);
        }
        if taken > 0 {
            self.chunk(kind, number, "", taken, stamp);
        }
    }

    /// Takes back the open block `key` and forgets it.
    pub fn drop_block<'k>(&mut self, kind: Kind, key: impl Into<Key<'k>>, stamp: &Stamp<'_>) {
        let thread = self.memory.thread(stamp.thread());
        let log = self.log(thread, kind);
        if let Some(at) = log.find(key.into()) {
            log.open.retain(|(_, _, block)| *block != at);
            log.blocks[at].half = None;
            self.replace(kind, thread, at, "", stamp);
        }
    }

    // ---------------------------------------------------------------- tools

    /// A new model message: an id that comes again from here on names a new call, even if the old one is open.
    pub fn next_turn(&mut self) {
        self.memory.turn += 1;
    }

    /// An id for the next call, which the wire gives none.
    pub fn nameless(&self) -> String {
        format!("{NAMELESS}{}", self.memory.call_count + 1)
    }

    /// How many calls there were, which is the number of the last one.
    pub fn call_count(&self) -> u32 {
        self.memory.call_count
    }

    /// Whether a `tool_call` event with this id (or key) was emitted.
    pub fn knows(&self, key: &str) -> bool {
        let call = self.memory.calls.get(key);
        call.is_some_and(|call| call.announced)
    }

    /// Whether the latest call with this id (or key) was announced and has no result yet.
    pub fn is_open(&self, key: &str) -> bool {
        let call = self.memory.calls.get(key);
        call.is_some_and(|call| call.announced && !call.closed)
    }

    /// The thread that the latest call with this id belongs to.
    pub fn thread_of(&self, id: &str) -> Option<String> {
        let call = self.memory.calls.get(id)?;
        call.thread.as_deref().map(str::to_owned)
    }

    /// Keys of the thread's announced calls without a result, in order.
    pub fn open_calls(&self, thread: Option<&str>) -> Vec<String> {
        let calls = self.memory.calls.iter();
        let mut open: Vec<_> = calls
            .filter(|(_, c)| c.announced && !c.closed && c.thread.as_deref() == thread)
            .map(|(key, call)| (call.number, key.clone()))
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, key)| key).collect()
    }

    /// Announces a tool call. A call that is still open in this turn is the same call printed again and gives no event
    /// (false), unless `again` or a `twin`.
    pub fn call(&mut self, mut call: Call<'_>, stamp: &Stamp<'_>) -> bool {
        let turn = self.memory.turn;
        let key = call.key.as_deref().unwrap_or(&call.id);
        let (known, early) = match self.memory.calls.get_mut(key) {
            Some(known) if !known.announced => (true, true), // its result came first
            Some(known) if !known.closed && known.turn == turn && !call.again => {
                if !call.twin {
                    return false;
                }
                known.twins += 1;
                call.key = Some(twin_key(key, known.twins));
                (false, false)
            }
            Some(_) => (true, false),
            None => (false, false),
        };
        let key = call.key.as_deref().unwrap_or(&call.id);
        if !known || !early {
            self.new_call(key, &call.id, stamp);
        }
        let Some(state) = self.memory.calls.get_mut(key) else {
            return false;
        };
        state.announced = true;
        let status = state.status.get_or_insert(call.status.into()).clone();
        let number = state.number;
        let described = tool::describe(self.memory.dialect.name, call.name.as_deref(), &call.input);
        let title = match &call.title {
            Some(title) if !title.is_empty() => title,
            _ => &described.title,
        };
        let content = call.content.as_deref().unwrap_or(&described.content);
        let locations = call.locations.as_deref().unwrap_or(&described.locations);
        self.lossy |= call.id.is_lossy()
            || call.name.as_ref().is_some_and(Text::is_lossy)
            || call
                .title
                .as_ref()
                .is_some_and(|t| t.is_lossy() && !t.is_empty())
            || call.input.is_lossy()
            || call.order.as_ref().is_some_and(Text::is_lossy)
            || content.iter().any(Item::is_lossy)
            || locations.iter().any(|location| location.path.is_lossy());
        let event = ToolCall {
            id: &call.id,
            name: call.name.as_deref(),
            title,
            kind: call.kind.unwrap_or(described.kind),
            status: &status,
            input: &call.input,
            content,
            locations,
            call: number,
            started_at: call.started_at.as_deref(),
            no_result: call.no_result,
            order: call.order.as_deref(),
        };
        self.emit(EventUpdate::ToolCall(event), stamp);
        let thread = self.memory.thread(stamp.thread());
        let attempt = &mut self.memory.threads[thread].attempt;
        attempt.push(call.key.unwrap_or_else(|| call.id.into_string()));
        true
    }

    /// Tells how a call goes on or ended. It may come before its call. A second result for a closed call is dropped
    /// (false) unless `again`: the first stands.
    pub fn update(&mut self, update: Update<'_>, stamp: &Stamp<'_>) -> bool {
        let mut key = update.key.as_deref().unwrap_or(&update.id);
        let twin;
        match self.memory.calls.get(key) {
            None => self.new_call(key, &update.id, stamp),
            Some(known) if known.closed && !update.again => {
                let mut twins = (1..=known.twins).map(|number| twin_key(key, number));
                let open = twins.find(|key| self.memory.calls.get(key).is_some_and(|c| !c.closed));
                let Some(open) = open else {
                    return false;
                };
                twin = open;
                key = &twin;
            }
            Some(_) => {}
        }
        let terminal = matches!(update.status, Some("completed" | "failed"));
        let done = update.done.unwrap_or(terminal);
        let Some(state) = self.memory.calls.get_mut(key) else {
            return false;
        };
        state.closed |= done;
        if let Some(status) = update.status {
            state.status = Some(status.into());
        }
        let number = state.number;
        let facts = &update.facts;
        let texts = [
            &facts.name,
            &facts.started_at,
            &facts.ended_at,
            &facts.result,
        ];
        self.lossy |= update.id.is_lossy()
            || update.title.as_ref().is_some_and(Text::is_lossy)
            || update.content.iter().any(Item::is_lossy)
            || update
                .locations
                .iter()
                .any(|location| location.path.is_lossy())
            || update.raw_output.as_ref().is_some_and(Data::is_lossy)
            || facts.input.as_ref().is_some_and(Data::is_lossy)
            || texts.into_iter().flatten().any(Text::is_lossy);
        let event = ToolCallUpdate {
            id: &update.id,
            status: update.status,
            title: update.title.as_deref().filter(|title| !title.is_empty()),
            content: &update.content,
            locations: &update.locations,
            raw_output: update.raw_output.as_ref(),
            call: number,
            done,
            facts,
        };
        self.emit(EventUpdate::ToolCallUpdate(event), stamp);
        true
    }

    // ---------------------------------------------------------------- the rest

    /// The whole plan.
    pub fn plan(&mut self, entries: &[PlanEntry<'_>], stamp: &Stamp<'_>) {
        self.lossy |= entries.iter().any(|entry| entry.content.is_lossy());
        self.emit(EventUpdate::Plan(entries), stamp);
    }

    /// What the harness says went wrong.
    pub fn error<'a>(&mut self, message: impl Into<Text<'a>>, stamp: &Stamp<'_>, fatal: bool) {
        self.any_error(message.into(), stamp, fatal, false);
    }

    /// An error event that is no error of the run: a retry, a warning.
    pub fn notice<'a>(&mut self, message: impl Into<Text<'a>>, stamp: &Stamp<'_>) {
        self.any_error(message.into(), stamp, false, true);
    }

    /// Token counts of one model call. The last usage of a `key` counts; without one each is a call of its own. `side`
    /// marks a call that is not the main loop's (compaction, title).
    pub fn call_usage(
        &mut self,
        tokens: &Tokens<'_>,
        stamp: &Stamp<'_>,
        key: Option<&str>,
        side: bool,
    ) {
        self.usage(
            Usage {
                key,
                side,
                ..Usage::call(tokens)
            },
            stamp,
        );
    }

    /// The harness's own total; `total` is what `run.usage.run` becomes, where the record tells only a share of it.
    pub fn run_usage(
        &mut self,
        tokens: &Tokens<'_>,
        stamp: &Stamp<'_>,
        total: Option<&Tokens<'_>>,
    ) {
        self.usage(
            Usage {
                total,
                ..Usage::run(tokens)
            },
            stamp,
        );
    }

    /// The harness's own total so far: a repeat of what was said last is no event.
    pub fn run_usage_so_far(&mut self, tokens: &Tokens<'_>, stamp: &Stamp<'_>) {
        self.usage(
            Usage {
                key: Some("run"),
                ..Usage::run(tokens)
            },
            stamp,
        );
    }

    /// One of the states of `types.StateUpdate`.
    pub fn state(&mut self, state: State<'_>, stamp: &Stamp<'_>) {
        let starts = state.name == "turn" && state.text("phase").as_deref() == Some("start");
        if starts && std::mem::take(&mut self.memory.told_start) {
            return;
        }
        if matches!(state.name, "turn" | "end") {
            self.memory.over = !starts;
            self.memory.told_start = false;
        }
        self.lossy |= state.details.iter().any(|(_, value)| value.is_lossy());
        self.emit(EventUpdate::State(&state), stamp);
    }

    /// Another process of the harness begins in the same source: how the run before it ended is not how this one does.
    pub fn another_run(&mut self, stamp: &Stamp<'_>) {
        if self.memory.over {
            self.state(State::new("turn").with("phase", "start"), stamp);
            self.memory.told_start = true;
        }
    }

    /// The `session` state, if it says anything new: sessionId, version, model, cwd, title.
    pub fn session_state(
        &mut self,
        details: &[(&'static str, Option<Text<'_>>)],
        stamp: &Stamp<'_>,
    ) {
        let mut state = State::new("session");
        for (key, value) in details {
            let Some(value) = value else { continue };
            let known = self.memory.session.iter_mut().find(|(name, _)| name == key);
            match known {
                Some((_, old)) if **old == **value => continue,
                Some((_, old)) => *old = value.to_string(),
                None => {
                    let known = (Cow::Borrowed(*key), value.to_string());
                    self.memory.session.push(known);
                }
            }
            self.lossy |= value.is_lossy();
            state = state.with(key, value.borrow());
        }
        if !state.details.is_empty() {
            self.emit(EventUpdate::State(&state), stamp);
        }
    }

    /// The stream is over: surrogate halves that still wait become U+FFFD.
    pub fn finish(&mut self) {
        for thread in 0..self.memory.threads.len() {
            self.flush_halves(thread);
        }
    }

    // ---------------------------------------------------------------- inside

    fn emit(&mut self, update: EventUpdate<'_>, stamp: &Stamp<'_>) {
        self.lossy |= stamp.is_lossy();
        self.sink.take(&Event {
            update,
            stamp,
            place: self.place,
        });
    }

    fn any_error(&mut self, message: Text<'_>, stamp: &Stamp<'_>, fatal: bool, notice: bool) {
        self.lossy |= message.is_lossy();
        let message = &*message;
        self.emit(
            EventUpdate::Error {
                message,
                fatal,
                notice,
            },
            stamp,
        );
    }

    /// Token counts with all that there may be to say of them.
    pub fn usage(&mut self, usage: Usage<'_>, stamp: &Stamp<'_>) {
        let tokens = usage.tokens;
        let lossy = tokens
            .extra
            .iter()
            .any(|(key, value)| key.is_lossy() || value.is_lossy());
        self.lossy |= lossy;
        if tokens.is_empty() {
            return;
        }
        if let Some(key) = usage.key {
            let said = tokens.to_data().to_raw();
            if self.memory.usages.get(key) == Some(&said) {
                return;
            }
            self.memory.usages.insert(key.to_owned(), said);
        }
        self.emit(EventUpdate::Usage(usage), stamp);
    }

    fn log(&mut self, thread: usize, kind: Kind) -> &mut TextLog {
        &mut self.memory.threads[thread].logs[kind as usize]
    }

    fn block(&mut self, thread: usize, kind: Kind, at: usize) -> &mut Block {
        &mut self.log(thread, kind).blocks[at]
    }

    #[inline]
    fn open(&mut self, kind: Kind, key: Key<'_>, stamp: &Stamp<'_>) -> (usize, usize) {
        let thread = self.memory.thread(stamp.thread());
        if let Some(at) = self.log(thread, kind).find(key) {
            return (thread, at);
        }
        let at = self.new_block(thread, kind, None);
        let log = self.log(thread, kind);
        log.open.push((key.name.into(), key.index, at));
        (thread, at)
    }

    fn new_block(&mut self, thread: usize, kind: Kind, order: Option<String>) -> usize {
        self.memory.block_count += 1;
        let number = self.memory.block_count;
        let mut text = std::mem::take(&mut self.memory.spare);
        text.clear();
        let log = self.log(thread, kind);
        let after =
            |block: &&Block| block.order.is_some() && order.is_some() && block.order > order;
        let at = log.blocks.len() - log.blocks.iter().rev().take_while(after).count();
        for (_, _, open) in &mut log.open {
            *open += usize::from(*open >= at);
        }
        let shown = order.is_some(); // its place is given
        log.blocks.insert(
            at,
            Block {
                number,
                order,
                text,
                half: None,
                shown,
            },
        );
        at
    }

    fn append(&mut self, kind: Kind, thread: usize, at: usize, text: &str, stamp: &Stamp<'_>) {
        if text.is_empty() {
            return;
        }
        let blocks = &mut self.log(thread, kind).blocks;
        if at + 1 == blocks.len() && blocks[at].shown {
            blocks[at].text.push_str(text);
            let number = blocks[at].number;
            self.chunk(kind, number, text, 0, stamp);
            return;
        }
        let at = self.show(thread, kind, at);
        let later = self.later_chars(thread, kind, at);
        let block = self.block(thread, kind, at);
        block.text.push_str(text);
        let number = block.number;
        self.chunk(kind, number, text, later, stamp);
        self.say_later_again(thread, kind, at, stamp);
    }

    fn replace(&mut self, kind: Kind, thread: usize, at: usize, text: &str, stamp: &Stamp<'_>) {
        let block = self.block(thread, kind, at);
        if block.text == text {
            return;
        }
        let at = self.show(thread, kind, at);
        let block = self.block(thread, kind, at);
        let same = common_prefix(&block.text, text);
        let gone = block.text[same..].chars().count();
        block.text.truncate(same);
        block.text.push_str(&text[same..]);
        let number = block.number;
        let gone = gone + self.later_chars(thread, kind, at);
        self.chunk(kind, number, &text[same..], gone, stamp);
        self.say_later_again(thread, kind, at, stamp);
    }

    /// The place of a block of which something is emitted now: that of its first chunk.
    fn show(&mut self, thread: usize, kind: Kind, at: usize) -> usize {
        let log = self.log(thread, kind);
        if log.blocks[at].shown {
            return at;
        }
        log.blocks[at].shown = true;
        log.blocks[at..].rotate_left(1);
        let last = log.blocks.len() - 1;
        for (_, _, place) in &mut log.open {
            if *place == at {
                *place = last;
            } else if *place > at {
                *place -= 1;
            }
        }
        last
    }

    /// Characters of the blocks after this one: what is emitted for this one must move them back.
    fn later_chars(&mut self, thread: usize, kind: Kind, at: usize) -> usize {
        let later = &self.log(thread, kind).blocks[at + 1..];
        later.iter().map(|block| block.text.chars().count()).sum()
    }

    fn say_later_again(&mut self, thread: usize, kind: Kind, at: usize, stamp: &Stamp<'_>) {
        if self.memory.told.is_some() {
            let again = self.later_chars(thread, kind, at);
            if let Some(told) = self.memory.told(kind, stamp) {
                *told = told.saturating_add(again);
            }
        }
        let blocks = &self.memory.threads[thread].logs[kind as usize].blocks;
        for block in &blocks[at + 1..] {
            if !block.text.is_empty() {
                let chunk = Chunk {
                    kind,
                    content: Content::Text(&block.text),
                    retract: 0,
                    block: block.number,
                };
                self.sink.take(&Event {
                    update: EventUpdate::Chunk(chunk),
                    stamp,
                    place: self.place,
                });
            }
        }
    }

    fn chunk(&mut self, kind: Kind, block: u32, text: &str, retract: usize, stamp: &Stamp<'_>) {
        if let Some(told) = self.memory.told(kind, stamp) {
            *told = told
                .saturating_add(text.chars().count())
                .saturating_sub(retract);
        }
        let chunk = Chunk {
            kind,
            content: Content::Text(text),
            retract,
            block,
        };
        self.emit(EventUpdate::Chunk(chunk), stamp);
    }

    fn flush_halves(&mut self, thread: usize) {
        for kind in TEXT_KINDS {
            for index in 0..self.log(thread, kind).open.len() {
                let at = self.log(thread, kind).open[index].2;
                if let Some((_, stamp)) = self.block(thread, kind, at).half.take() {
                    self.lossy = true;
                    self.append(kind, thread, at, "\u{fffd}", &stamp);
                }
            }
        }
    }

    fn new_call(&mut self, key: &str, id: &str, stamp: &Stamp<'_>) {
        self.memory.call_count += 1;
        let call = CallState {
            id: (key != id).then(|| id.into()),
            number: self.memory.call_count,
            thread: stamp.thread().map(Box::from),
            turn: self.memory.turn,
            announced: false,
            closed: false,
            status: None,
            twins: 0,
        };
        self.memory.calls.insert(key.to_owned(), call);
    }
}

fn twin_key(key: &str, number: u32) -> String {
    format!("{key} #{number}")
}

/// A key for calls where sub-agents number theirs as the main agent does.
pub fn scoped(id: &str, stamp: &Stamp<'_>) -> String {
    match stamp.thread() {
        None => id.to_owned(),
        Some(thread) => format!("{thread} {id}"),
    }
}

/// The character of two halves, or U+FFFD for one that is alone (and whether it was).
fn join(high: Option<u16>, low: Option<u16>) -> (Option<char>, bool) {
    match (high, low) {
        (Some(high), Some(low)) => {
            let code = 0x10000 + ((high as u32 & 0x3ff) << 10 | low as u32 & 0x3ff);
            (char::from_u32(code), false)
        }
        (None, None) => (None, false),
        _ => (Some(char::REPLACEMENT_CHARACTER), true),
    }
}

/// Cuts up to `count` characters off the end; returns how many.
pub(crate) fn cut_chars(text: &mut String, count: usize) -> usize {
    let mut taken = 0;
    while taken < count && text.pop().is_some() {
        taken += 1;
    }
    taken
}

/// Length in bytes of the longest common beginning that ends between characters.
fn common_prefix(one: &str, two: &str) -> usize {
    let mut same = one
        .bytes()
        .zip(two.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    while !one.is_char_boundary(same) || !two.is_char_boundary(same) {
        same -= 1;
    }
    same
}
