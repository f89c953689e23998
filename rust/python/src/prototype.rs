//! Dicts that are much like the last ones are copies of those, in which only what differs is set.
//!
//! A copy of a dict costs one block of memory and no look-ups; what is the same in all, keys and values, is one object.

use headrace_core::event::{Chunk, Content, Event, Kind, Stamp};
use headrace_core::json::{Kept, Short, Spot, Text, Value, View};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::given::Given;
use crate::mold::{Mold, Part, Used, is_no_matter};
use crate::objects::{Builder, Layer};

/// The dicts and lists of the records that fit one pattern.
pub struct Record {
    /// Each before those in it; the first is the record.
    containers: Vec<Container>,
    slots: Vec<Slot>,
    /// Its dicts can be used again.
    is_open: bool,
}

struct Container {
    object: Object,
    /// The containers in it: at which place, and which.
    inner: Vec<(usize, usize)>,
    /// Which container it is in, and at which place.
    outer: Option<(usize, usize)>,
}

/// A place in it is the number of a seat, or an index.
enum Object {
    Dict(Mold),
    List(Py<PyList>),
}

/// Containers of a record that is used again.
const MOST_OPEN: usize = 8;
/// What holds more text is not kept to be used again.
const LONGEST: usize = 1 << 12;

/// Where the value of a slot goes.
struct Slot {
    container: usize,
    place: usize,
    /// The text of the value that is there now.
    last: Short,
}

impl Record {
    /// None if its records can't be made so: keys are repeated or have escapes.
    pub fn new(py: Python<'_>, builder: &mut Builder, record: &Kept) -> PyResult<Option<Record>> {
        let Some((pattern, _)) = record.slots() else {
            return Ok(None);
        };
        let spots: Vec<Spot> = pattern.slots().collect();
        let mut plan = Plan {
            py,
            builder,
            root: record.value(),
            spots: &spots,
            containers: Vec::new(),
            slots: Vec::new(),
        };
        let whole = plan.add(record.value(), None)?.is_some();
        let Plan {
            containers, slots, ..
        } = plan;
        let containers: Option<Vec<_>> = containers.into_iter().collect();
        Ok(match containers {
            Some(containers) if whole && slots.len() == spots.len() => {
                let is_open =
                    |it: &Container| matches!(&it.object, Object::Dict(mold) if mold.is_open());
                let is_open = containers.len() <= MOST_OPEN && containers.iter().all(is_open);
                Some(Record {
                    containers,
                    slots,
                    is_open,
                })
            }
            _ => None,
        })
    }

    /// A record with these values in the slots.
    pub fn make<'py, 'v>(
        &mut self,
        py: Python<'py>,
        builder: &mut Builder,
        given: Option<&mut Given>,
        values: impl Iterator<Item = Value<'v>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut long = 0;
        for (slot, value) in self.slots.iter_mut().zip(values) {
            if !slot.last.is(value) {
                let object = builder.value(py, value, Layer::Raw)?;
                self.containers[slot.container].put(py, slot.place, object)?;
                slot.last.set(value);
                if slot.last.is_none() {
                    long += value.raw().len();
                }
            }
        }
        let made = match given {
            Some(given) if self.is_open && long <= LONGEST => {
                let old = given.back(py).filter(|old| self.renew(old));
                let made = old.map_or_else(|| self.copy(py, 0), Ok);
                made.inspect(|made| given.keep(made))
            }
            _ => self.copy(py, 0),
        };
        if long > 0 {
            for slot in self.slots.iter().filter(|slot| slot.last.is_none()) {
                let none = py.None().into_bound(py);
                self.containers[slot.container].put(py, slot.place, none)?;
            }
        }
        made
    }

    /// Makes a record that was made before into this one, if it is as it was but for what is in the slots, and if nobody
    /// has any part of it.
    fn renew(&self, old: &Bound<'_, PyAny>) -> bool {
        let mut found = [None; MOST_OPEN];
        for (number, Container { object, outer, .. }) in self.containers.iter().enumerate() {
            let used: Option<Borrowed<'_, '_, PyAny>> = match *outer {
                None => Some(old.as_borrowed()),
                Some((outer, seat)) => {
                    found[outer].and_then(|outer: Used<'_, '_, '_>| outer.at(seat))
                }
            };
            found[number] = match (object, used) {
                (Object::Dict(mold), Some(used)) => mold.used(used),
                _ => None,
            };
            if found[number].is_none() {
                return false;
            }
        }
        for slot in &self.slots {
            if !found[slot.container].is_some_and(|used| used.renew(slot.place)) {
                return false;
            }
        }
        true
    }

    fn copy<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyAny>> {
        let Container { object, inner, .. } = &self.containers[number];
        match object {
            Object::Dict(mold) => {
                let cast = mold.cast(py)?;
                for (seat, number) in inner {
                    cast.put(*seat, self.copy(py, *number)?)?;
                }
                let whole = match inner.is_empty() {
                    true => cast.plain(),
                    false => cast.watched(),
                };
                Ok(whole.into_any())
            }
            Object::List(list) => {
                let list = list.bind(py);
                let copy = list.get_slice(0, list.len());
                for (index, number) in inner {
                    copy.set_item(*index, self.copy(py, *number)?)?;
                }
                Ok(copy.into_any())
            }
        }
    }
}

impl Container {
    /// Puts there what all copies from now on have there.
    #[inline(always)]
    fn put<'py>(&self, py: Python<'py>, place: usize, value: Bound<'py, PyAny>) -> PyResult<()> {
        match &self.object {
            Object::Dict(mold) => mold.put(py, place, value),
            Object::List(list) => list.bind(py).set_item(place, value),
        }
    }
}

/// A [`Record`] in the making.
struct Plan<'p, 'py> {
    py: Python<'py>,
    builder: &'p mut Builder,
    root: Value<'p>,
    spots: &'p [Spot],
    /// None: not done yet.
    containers: Vec<Option<Container>>,
    slots: Vec<Slot>,
}

impl<'p, 'py> Plan<'p, 'py> {
    /// Adds a container and all in it. Its number; None if that can't be.
    fn add(&mut self, value: Value<'p>, outer: Option<(usize, usize)>) -> PyResult<Option<usize>> {
        let number = self.containers.len();
        self.containers.push(None);
        let mut inner = Vec::new();
        let object = match value.view() {
            View::Object(members) => {
                let mut parts: Vec<(Bound<'py, PyString>, Part<'py>)> = Vec::new();
                let mut names = Vec::new();
                let mut seats = 0;
                for (name, member) in members {
                    if name.has_escapes() || names.contains(&name.raw()) {
                        return Ok(None);
                    }
                    names.push(name.raw());
                    let Some(part) = self.member(member, number, seats, &mut inner)? else {
                        return Ok(None);
                    };
                    seats += usize::from(matches!(part, Part::Seat));
                    parts.push((self.builder.name(self.py, name.raw()), part));
                }
                Object::Dict(Mold::new(self.py, parts)?)
            }
            View::Array(items) => {
                let list = PyList::empty(self.py);
                for (index, item) in items.enumerate() {
                    match self.member(item, number, index, &mut inner)? {
                        Some(Part::Same(item)) => list.append(item)?,
                        Some(Part::Seat) => list.append(self.py.None())?,
                        None => return Ok(None),
                    }
                }
                Object::List(list.unbind())
            }
            _ => return Ok(None), // can't be: only containers are added
        };
        self.containers[number] = Some(Container {
            object,
            inner,
            outer,
        });
        Ok(Some(number))
    }

    /// A member of a container: a seat, if it is a container too or what is in a slot. None if that can't be.
    fn member(
        &mut self,
        member: Value<'p>,
        container: usize,
        place: usize,
        inner: &mut Vec<(usize, usize)>,
    ) -> PyResult<Option<Part<'py>>> {
        if member.is_object() || member.is_array() {
            let Some(number) = self.add(member, Some((container, place)))? else {
                return Ok(None);
            };
            inner.push((place, number));
            return Ok(Some(Part::Seat));
        }
        if self.spots.contains(&self.root.spot_of(member)) {
            self.slots.push(Slot {
                container,
                place,
                last: Short::NONE,
            });
            return Ok(Some(Part::Seat));
        }
        let object = self.builder.value(self.py, member, Layer::Raw)?;
        Ok(Some(Part::Same(object)))
    }
}

/// The events of text chunks of one kind whose lines say the same things of themselves.
pub struct Chunks {
    kind: Kind,
    /// What the last line said.
    stamp: Stamp<'static>,
    /// Made when a second one is asked for.
    molds: Option<Molds>,
}

/// Of an event, its update, and the content of that. Seat 0 is where the next one goes, or the text; the others of the
/// event are for what is in the stamp.
struct Molds {
    event: Mold,
    update: Mold,
    content: Mold,
}

impl Chunks {
    /// Whether the event is one that may differ from the next one in text and stamp only.
    pub fn may_be(event: &Event<'_>, chunk: &Chunk<'_>) -> bool {
        matches!(chunk.content, Content::Text(_))
            && chunk.retract == 0
            && event.stamp.extra.is_empty()
    }

    /// The events that are like this one.
    pub fn new(event: &Event<'_>, chunk: &Chunk<'_>) -> Chunks {
        Chunks {
            kind: chunk.kind,
            stamp: event.stamp.to_static(),
            molds: None,
        }
    }

    /// Whether the event is one of these, and its line says what the last one's said.
    #[inline]
    pub fn repeats(&self, event: &Event<'_>, chunk: &Chunk<'_>) -> bool {
        let (mine, other) = (&self.stamp, event.stamp);
        self.kind == chunk.kind
            && mine.session_id == other.session_id
            && mine.message_id == other.message_id
            && mine.timestamp == other.timestamp
            && mine.model == other.model
            && mine.parent == other.parent
    }

    /// Whether the event is one of these.
    pub fn has(&self, event: &Event<'_>, chunk: &Chunk<'_>) -> bool {
        let (mine, other) = (&self.stamp, event.stamp);
        self.kind == chunk.kind
            && mine.session_id.is_some() == other.session_id.is_some()
            && mine.message_id.is_some() == other.message_id.is_some()
            && mine.timestamp.is_some() == other.timestamp.is_some()
            && mine.model.is_some() == other.model.is_some()
            && mine.parent.is_some() == other.parent.is_some()
    }

    /// The next one is made like this one, of which this is the dict.
    pub fn learn(&mut self, event: &Event<'_>, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        let py = dict.py();
        self.stamp = event.stamp.to_static();
        let (update, content) = (intern!(py, "update"), intern!(py, "content"));
        let inside = inner(dict, update)?;
        // The mold of a dict in which these keys are seats.
        let mold = |dict: &Bound<'_, PyDict>, seats: &[&Bound<'_, PyString>]| {
            let is_seat = |key: &Bound<'_, PyAny>| seats.iter().any(|seat| seat.is(key));
            let parts = dict.iter().map(|(key, value)| match is_seat(&key) {
                true => Ok((key.cast_into::<PyString>()?, Part::Seat)),
                false => Ok((key.cast_into::<PyString>()?, Part::Same(value))),
            });
            Mold::new(py, parts.collect::<PyResult<Vec<_>>>()?)
        };
        let mut seats = vec![update];
        for (key, part) in parts(&self.stamp) {
            if part.is_some() {
                seats.push(key(py));
            }
        }
        let molds = Molds {
            event: mold(dict, &seats)?,
            content: mold(&inner(&inside, content)?, &[intern!(py, "text")])?,
            update: mold(&inside, &[content])?,
        };
        // The seats of the event have what is in this one.
        for (seat, key) in seats.iter().enumerate().skip(1) {
            molds.event.put(py, seat, dict.as_any().get_item(key)?)?;
        }
        self.molds = Some(molds);
        Ok(())
    }

    /// The next ones have lines that say what this one's says.
    pub fn follow(
        &mut self,
        py: Python<'_>,
        builder: &mut Builder,
        event: &Event<'_>,
    ) -> PyResult<()> {
        match &self.molds {
            Some(molds) => set_stamp(py, builder, &molds.event, &mut self.stamp, event.stamp),
            None => Ok(()),
        }
    }

    /// An event that repeats the stamp of the last one; None if none was learned.
    #[inline]
    pub fn make<'py>(
        &self,
        py: Python<'py>,
        builder: &mut Builder,
        given: &mut Given,
        chunk: &Chunk<'_>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (Some(molds), Content::Text(text)) = (&self.molds, &chunk.content) else {
            return Ok(None);
        };
        let may_be_kept = molds.event.is_open() && text.len() <= LONGEST;
        if may_be_kept
            && let Some(old) = given.back(py)
            && let Some(event) = molds.event.used(old.as_borrowed())
            && let Some(update) = event.at(0).and_then(|update| molds.update.used(update))
            && let Some(content) = update.at(0).and_then(|content| molds.content.used(content))
            && content.at(0).is_some_and(is_no_matter)
            && event.renew_from(1)
        {
            content.put(0, builder.text(py, text).into_any());
            given.keep(&old);
            return Ok(Some(old.cast_into()?));
        }
        let content = molds.content.cast(py)?;
        content.put(0, builder.text(py, text).into_any())?;
        let update = molds.update.cast(py)?;
        update.put(0, content.plain().into_any())?;
        let dict = molds.event.cast(py)?;
        dict.put(0, update.watched().into_any())?;
        let dict = dict.watched();
        if may_be_kept {
            given.keep(dict.as_any());
        }
        Ok(Some(dict))
    }
}

type Key = for<'py> fn(Python<'py>) -> &'py Bound<'py, PyString>;

/// What a stamp may say, each with its key in the event.
#[inline(always)]
pub fn parts<'s, 'a>(stamp: &'s Stamp<'a>) -> [(Key, &'s Option<Text<'a>>); 5] {
    [
        (|py| intern!(py, "sessionId"), &stamp.session_id),
        (|py| intern!(py, "messageId"), &stamp.message_id),
        (|py| intern!(py, "timestamp"), &stamp.timestamp),
        (|py| intern!(py, "model"), &stamp.model),
        (|py| intern!(py, "parentToolCallId"), &stamp.parent),
    ]
}

/// Puts what a stamp says where the last one said other things.
fn set_stamp(
    py: Python<'_>,
    builder: &mut Builder,
    event: &Mold,
    last: &mut Stamp<'static>,
    stamp: &Stamp<'_>,
) -> PyResult<()> {
    let last = [
        &mut last.session_id,
        &mut last.message_id,
        &mut last.timestamp,
        &mut last.model,
        &mut last.parent,
    ];
    let mut seat = 0;
    for (last, (_, part)) in last.into_iter().zip(parts(stamp)) {
        let (Some(last), Some(part)) = (last, part) else {
            continue;
        };
        seat += 1;
        if **last != **part {
            event.put(py, seat, builder.text(py, part).into_any())?;
            *last = Text::from(part.to_string());
        }
    }
    Ok(())
}

fn inner<'py>(
    dict: &Bound<'py, PyDict>,
    key: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict.as_any().get_item(key)?.cast_into()?)
}
