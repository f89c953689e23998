//! Dicts that are much like the last ones are copies of those, in which only what differs is set.
//!
//! A copy of a dict costs one block of memory and no look-ups; what is the same in all, keys and values, is one object.

use headrace_core::event::{Chunk, Content, Event, Kind, Stamp};
use headrace_core::json::{Kept, Spot, Value, View};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::ffi;
use crate::objects::{Builder, Layer};

/// The dicts and lists of the records that fit one pattern.
pub struct Record {
    /// The outer before those in it; the first is the record.
    containers: Vec<Container>,
    /// Where the values of the pattern's slots go.
    slots: Vec<(usize, Key)>,
}

struct Container {
    object: Object,
    /// Where it goes, in which other.
    within: Option<(usize, Key)>,
}

enum Object {
    Dict(Py<PyDict>),
    List(Py<PyList>),
}

enum Key {
    Name(Py<PyString>),
    Index(usize),
}

impl Record {
    /// None if its records can't be made so: keys are repeated or have escapes.
    pub fn new(py: Python<'_>, builder: &mut Builder, record: &Kept) -> PyResult<Option<Record>> {
        let Some((pattern, _)) = record.slots() else {
            return Ok(None);
        };
        let slots: Vec<Spot> = pattern.slots().collect();
        let mut new = Record {
            containers: Vec::new(),
            slots: Vec::new(),
        };
        let root = record.value();
        let whole = new.add(py, builder, (root, &slots), root, None)?;
        Ok((whole && new.slots.len() == slots.len()).then_some(new))
    }

    /// Adds a container and all in it; false if that can't be.
    fn add(
        &mut self,
        py: Python<'_>,
        builder: &mut Builder,
        known: (Value<'_>, &[Spot]),
        value: Value<'_>,
        within: Option<(usize, Key)>,
    ) -> PyResult<bool> {
        let number = self.containers.len();
        match value.view() {
            View::Object(members) => {
                let dict = PyDict::new(py);
                let object = Object::Dict(dict.clone().unbind());
                self.containers.push(Container { object, within });
                for (name, member) in members {
                    let key = builder.name(py, name.raw());
                    if name.has_escapes() || dict.contains(&key)? {
                        return Ok(false);
                    }
                    let place = (number, Key::Name(key.clone().unbind()));
                    let (whole, member) = self.put(py, builder, known, member, place)?;
                    dict.set_item(key, member)?;
                    if !whole {
                        return Ok(false);
                    }
                }
            }
            View::Array(items) => {
                let list = PyList::empty(py);
                let object = Object::List(list.clone().unbind());
                self.containers.push(Container { object, within });
                for (index, item) in items.enumerate() {
                    let place = (number, Key::Index(index));
                    let (whole, item) = self.put(py, builder, known, item, place)?;
                    list.append(item)?;
                    if !whole {
                        return Ok(false);
                    }
                }
            }
            _ => return Ok(false), // can't be: only containers are added
        }
        Ok(true)
    }

    /// What stands for a member in the prototype: itself if it is the same in all records, else None.
    fn put<'py>(
        &mut self,
        py: Python<'py>,
        builder: &mut Builder,
        known: (Value<'_>, &[Spot]),
        member: Value<'_>,
        place: (usize, Key),
    ) -> PyResult<(bool, Bound<'py, PyAny>)> {
        let none = py.None().into_bound(py);
        if member.is_object() || member.is_array() {
            return Ok((self.add(py, builder, known, member, Some(place))?, none));
        }
        let (root, slots) = known;
        if slots.contains(&root.spot_of(member)) {
            self.slots.push(place);
            return Ok((true, none));
        }
        Ok((true, builder.value(py, member, Layer::Raw)?))
    }

    /// A record with these values in the slots.
    pub fn make<'py, 'v>(
        &self,
        py: Python<'py>,
        builder: &mut Builder,
        values: impl Iterator<Item = Value<'v>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut objects: Vec<Bound<'py, PyAny>> = Vec::with_capacity(self.containers.len());
        for Container { object, within } in &self.containers {
            let copy = match object {
                Object::Dict(dict) => ffi::copy(dict.bind(py))?.into_any(),
                Object::List(list) => {
                    let list = list.bind(py);
                    list.get_slice(0, list.len()).into_any()
                }
            };
            if let Some((outer, key)) = within {
                set(&objects[*outer], key, copy.clone())?;
            }
            objects.push(copy);
        }
        for ((container, key), value) in self.slots.iter().zip(values) {
            let value = builder.value(py, value, Layer::Raw)?;
            set(&objects[*container], key, value)?;
        }
        Ok(objects.swap_remove(0))
    }
}

fn set<'py>(object: &Bound<'py, PyAny>, key: &Key, value: Bound<'py, PyAny>) -> PyResult<()> {
    let py = object.py();
    match key {
        // The two kinds of key go with the two kinds of container.
        Key::Name(name) => ffi::set(object.cast()?, name.bind_borrowed(py), value),
        Key::Index(index) => object.cast::<PyList>()?.set_item(*index, value),
    }
}

/// The event of a text chunk whose line says the same of itself as the one before.
pub struct Text {
    kind: Kind,
    stamp: Stamp<'static>,
    event: Py<PyDict>,
    update: Py<PyDict>,
    content: Py<PyDict>,
}

impl Text {
    /// Whether the event is one that differs from the next one in text and time only.
    pub fn fits(event: &Event<'_>, chunk: &Chunk<'_>) -> bool {
        matches!(chunk.content, Content::Text(_))
            && chunk.retract == 0
            && event.stamp.extra.is_empty()
    }

    /// The prototype of an event that fits.
    pub fn new(py: Python<'_>, event: &Event<'_>, dict: &Bound<'_, PyDict>) -> PyResult<Text> {
        let update = inner(dict, intern!(py, "update"))?;
        let content = inner(&update, intern!(py, "content"))?;
        // What is set in each copy is left out, so that no event of the user is kept.
        let without = |dict: &Bound<'_, PyDict>, key: &str| -> PyResult<Py<PyDict>> {
            let copy = ffi::copy(dict)?;
            copy.set_item(key, py.None())?;
            Ok(copy.unbind())
        };
        Ok(Text {
            kind: event.kind(),
            stamp: event.stamp.to_static(),
            content: without(&content, "text")?,
            update: without(&update, "content")?,
            event: without(dict, "update")?,
        })
    }

    /// The event, which fits, if it is like this one.
    pub fn make<'py>(
        &self,
        py: Python<'py>,
        builder: &mut Builder,
        event: &Event<'_>,
        chunk: &Chunk<'_>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (mine, other) = (&self.stamp, event.stamp);
        let Content::Text(text) = chunk.content else {
            return Ok(None);
        };
        let same = self.kind == chunk.kind
            && mine.session_id == other.session_id
            && mine.message_id == other.message_id
            && mine.model == other.model
            && mine.parent == other.parent
            && mine.timestamp.is_some() == other.timestamp.is_some();
        if !same {
            return Ok(None);
        }
        let content = ffi::copy(self.content.bind(py))?;
        let text = builder.text(py, text).into_any();
        ffi::set(&content, intern!(py, "text").as_borrowed(), text)?;
        let update = ffi::copy(self.update.bind(py))?;
        ffi::set(
            &update,
            intern!(py, "content").as_borrowed(),
            content.into_any(),
        )?;
        let dict = ffi::copy(self.event.bind(py))?;
        ffi::set(
            &dict,
            intern!(py, "update").as_borrowed(),
            update.into_any(),
        )?;
        if let Some(time) = &other.timestamp {
            let time = builder.name(py, time).into_any();
            ffi::set(&dict, intern!(py, "timestamp").as_borrowed(), time)?;
        }
        Ok(Some(dict))
    }
}

fn inner<'py>(
    dict: &Bound<'py, PyDict>,
    key: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict.as_any().get_item(key)?.cast_into()?)
}
