//! Events that wait: what a parser told in one thread, for an output in another.

use std::ops::Range;

use crate::data::Data;
use crate::event::{
    Chunk, Content, Event, Facts, Image, Item, Kind, Location, Place, PlanEntry, Sink, Stamp,
    State, Tokens, ToolCall, ToolCallUpdate, Update, Usage,
};
use crate::json::Text;
use crate::parser::Output;
use crate::report::Malformed;

/// What an output was told, in order, to be told again.
///
/// Records are not kept, and of events not what only the reducer reads: that has read it.
#[derive(Default)]
pub struct Backlog {
    entries: Vec<Entry>,
    /// The texts of all chunks, and of their marks.
    text: String,
    marks: Vec<Marks>,
}

enum Entry {
    /// A text chunk: most events are.
    Chunk {
        kind: Kind,
        block: u32,
        /// Where its text begins, and how long that is.
        text: (usize, u32),
        retract: u32,
        /// Which of the marks are its.
        marks: u32,
        place: Place,
    },
    Event(Box<Kept>, Stamp<'static>, Place),
    Malformed(Box<Malformed>),
}

/// Where the [`texts`](Stamp::texts) of a stamp stand.
type Marks = [Option<Range<usize>>; 5];

/// The update of an event, without a tie to its record.
enum Kept {
    Text(Kind, String, usize, u32),
    Image(Kind, Image<'static>, usize, u32),
    ToolCall {
        id: String,
        name: Option<String>,
        title: String,
        kind: &'static str,
        status: String,
        input: Data<'static>,
        content: Vec<Item<'static>>,
        locations: Vec<Location<'static>>,
        call: u32,
    },
    ToolCallUpdate {
        id: String,
        status: Option<String>,
        title: Option<String>,
        content: Vec<Item<'static>>,
        locations: Vec<Location<'static>>,
        raw_output: Option<Data<'static>>,
        call: u32,
        done: bool,
    },
    Plan(Vec<PlanEntry<'static>>),
    Error {
        message: String,
        fatal: bool,
        notice: bool,
    },
    Usage(bool, Tokens<'static>),
    State(State<'static>),
}

impl Backlog {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Forgets everything, and keeps the room that it took.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.text.clear();
        self.marks.clear();
    }

    /// Tells these again.
    pub fn tell(&self, entries: Range<usize>, output: &mut dyn Output) {
        for entry in &self.entries[entries] {
            match entry {
                Entry::Chunk {
                    kind,
                    text,
                    retract,
                    block,
                    marks,
                    place,
                } => {
                    let stamp = self.stamp(&self.marks[*marks as usize]);
                    let chunk = Chunk {
                        kind: *kind,
                        content: Content::Text(&self.text[text.0..text.0 + text.1 as usize]),
                        retract: *retract as usize,
                        block: *block,
                    };
                    output.take(&Event {
                        update: Update::Chunk(chunk),
                        stamp: &stamp,
                        place: *place,
                    });
                }
                Entry::Event(kept, stamp, place) => kept.tell(stamp, *place, output),
                Entry::Malformed(line) => output.malformed(line),
            }
        }
    }

    fn stamp(&self, marks: &Marks) -> Stamp<'_> {
        let mut texts = marks.iter().map(|mark| {
            let text = &self.text[mark.clone()?];
            Some(Text::from(text))
        });
        let mut next = || texts.next().flatten();
        Stamp {
            session_id: next(),
            message_id: next(),
            timestamp: next(),
            model: next(),
            parent: next(),
            extra: Vec::new(),
        }
    }

    /// Keeps a text chunk; false if its figures are too great for an entry.
    fn chunk(&mut self, chunk: &Chunk<'_>, text: &str, stamp: &Stamp<'_>, place: Place) -> bool {
        let figures = (u32::try_from(text.len()), u32::try_from(chunk.retract));
        let (Ok(size), Ok(retract)) = figures else {
            return false;
        };
        let marks = self.mark(stamp);
        let text = self.put(text);
        self.entries.push(Entry::Chunk {
            kind: chunk.kind,
            block: chunk.block,
            text: (text.start, size),
            retract,
            marks: marks as u32, // not more than entries, which would fill the memory long before
            place,
        });
        true
    }

    fn put(&mut self, text: &str) -> Range<usize> {
        let start = self.text.len();
        self.text.push_str(text);
        start..self.text.len()
    }

    /// The place of the stamp's texts among the marks. What is as it was in the chunk before is not put down again.
    fn mark(&mut self, stamp: &Stamp<'_>) -> usize {
        let texts = stamp.texts();
        let text_of = |mark: &Option<Range<usize>>| mark.clone().map(|mark| &self.text[mark]);
        let last = self.marks.last();
        let is_last = last.is_some_and(|last| {
            let mut both = texts.iter().zip(last);
            both.all(|(text, mark)| text.as_deref() == text_of(mark))
        });
        if !is_last {
            let mut marks = last.cloned().unwrap_or_default();
            for (text, mark) in texts.into_iter().zip(&mut marks) {
                let text = text.as_deref();
                if text != mark.clone().map(|mark| &self.text[mark]) {
                    *mark = text.map(|text| self.put(text));
                }
            }
            self.marks.push(marks);
        }
        self.marks.len() - 1
    }
}

impl Sink for Backlog {
    fn take(&mut self, event: &Event<'_>) {
        if let Update::Chunk(chunk) = &event.update
            && let Content::Text(text) = chunk.content
            && event.stamp.extra.is_empty()
            && self.chunk(chunk, text, event.stamp, event.place)
        {
            return;
        }
        let kept = Box::new(Kept::new(&event.update));
        let stamp = event.stamp.to_static();
        self.entries.push(Entry::Event(kept, stamp, event.place));
    }
}

impl Output for Backlog {
    fn malformed(&mut self, line: &Malformed) {
        self.entries.push(Entry::Malformed(Box::new(line.clone())));
    }
}

impl Kept {
    fn new(update: &Update<'_>) -> Self {
        let own = |text: Option<&str>| text.map(str::to_owned);
        match update {
            Update::Chunk(chunk) => match &chunk.content {
                Content::Text(text) => {
                    Kept::Text(chunk.kind, (*text).into(), chunk.retract, chunk.block)
                }
                Content::Image(image) => {
                    Kept::Image(chunk.kind, image.to_static(), chunk.retract, chunk.block)
                }
            },
            Update::ToolCall(call) => Kept::ToolCall {
                id: call.id.into(),
                name: own(call.name),
                title: call.title.into(),
                kind: call.kind,
                status: call.status.into(),
                input: call.input.to_static(),
                content: call.content.iter().map(Item::to_static).collect(),
                locations: call.locations.iter().map(Location::to_static).collect(),
                call: call.call,
            },
            Update::ToolCallUpdate(update) => Kept::ToolCallUpdate {
                id: update.id.into(),
                status: own(update.status),
                title: own(update.title),
                content: update.content.iter().map(Item::to_static).collect(),
                locations: update.locations.iter().map(Location::to_static).collect(),
                raw_output: update.raw_output.map(Data::to_static),
                call: update.call,
                done: update.done,
            },
            Update::Plan(entries) => Kept::Plan(entries.iter().map(PlanEntry::to_static).collect()),
            Update::Error {
                message,
                fatal,
                notice,
            } => Kept::Error {
                message: (*message).into(),
                fatal: *fatal,
                notice: *notice,
            },
            Update::Usage(usage) => Kept::Usage(usage.run, usage.tokens.to_static()),
            Update::State(state) => Kept::State(state.to_static()),
        }
    }

    fn tell(&self, stamp: &Stamp<'_>, place: Place, output: &mut dyn Output) {
        let facts = Facts::default();
        let chunk = |kind, content, retract, block| {
            Update::Chunk(Chunk {
                kind,
                content,
                retract,
                block,
            })
        };
        let update = match self {
            Kept::Text(kind, text, retract, block) => {
                chunk(*kind, Content::Text(text), *retract, *block)
            }
            Kept::Image(kind, image, retract, block) => {
                chunk(*kind, Content::Image(image), *retract, *block)
            }
            Kept::ToolCall {
                id,
                name,
                title,
                kind,
                status,
                input,
                content,
                locations,
                call,
            } => Update::ToolCall(ToolCall {
                id,
                name: name.as_deref(),
                title,
                kind,
                status,
                input,
                content,
                locations,
                call: *call,
                started_at: None,
                no_result: false,
                order: None,
            }),
            Kept::ToolCallUpdate {
                id,
                status,
                title,
                content,
                locations,
                raw_output,
                call,
                done,
            } => Update::ToolCallUpdate(ToolCallUpdate {
                id,
                status: status.as_deref(),
                title: title.as_deref(),
                content,
                locations,
                raw_output: raw_output.as_ref(),
                call: *call,
                done: *done,
                facts: &facts,
            }),
            Kept::Plan(entries) => Update::Plan(entries),
            Kept::Error {
                message,
                fatal,
                notice,
            } => Update::Error {
                message,
                fatal: *fatal,
                notice: *notice,
            },
            Kept::Usage(true, tokens) => Update::Usage(Usage::run(tokens)),
            Kept::Usage(false, tokens) => Update::Usage(Usage::call(tokens)),
            Kept::State(state) => Update::State(state),
        };
        output.take(&Event {
            update,
            stamp,
            place,
        });
    }
}
