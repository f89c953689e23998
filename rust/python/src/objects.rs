//! Python objects from JSON values, data and events.

use std::cell::Cell;
use std::collections::HashMap;

use headrace_core::data::Data;
use headrace_core::event::{
    Chunk, Content, Event, Image, Item, Location, Place, PlanEntry, Stamp, Update,
};
use headrace_core::json::{Kept, Str, Tape, Value, View};
use headrace_core::number::Number;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyString};

use crate::ffi;
use crate::given::Given;
use crate::prototype::{self, Chunks};
use crate::shapes::Shapes;

/// What the objects are for: it decides what becomes of text that no UTF-8 and of integers that no 64 bits can say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// Any JSON writer can take it: U+FFFD, and integers beyond 64 bits as the text of their digits.
    Event,
    /// It can always be encoded, and its integers are exact.
    Run,
    /// As `json.loads` gives it.
    Raw,
}

/// Strings of no more bytes are told apart by [`print`] alone.
pub const SHORT: usize = 16;
/// Longer keys are not kept.
pub const MAX_KEY: usize = 64;

/// Strings that were seen, as Python strings: agent streams say the same few over and over. A new one takes the place of
/// the old one in its slot, so that there are never more than slots.
pub struct Known<const SLOTS: usize> {
    slots: Box<[Option<Slot>]>,
}

struct Slot {
    print: (u64, u64),
    len: usize,
    /// The text, if it is not short.
    long: Box<str>,
    object: Py<PyString>,
}

impl<const SLOTS: usize> Default for Known<SLOTS> {
    fn default() -> Self {
        Known {
            slots: (0..SLOTS).map(|_| None).collect(),
        }
    }
}

impl<const SLOTS: usize> Known<SLOTS> {
    #[inline]
    pub fn get<'k, 'py>(&'k mut self, py: Python<'py>, text: &str) -> Borrowed<'k, 'py, PyString> {
        let print = print(text.as_bytes());
        let mixed = (print.0 ^ print.1.rotate_left(29) ^ text.len() as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let slot = &mut self.slots[(mixed >> 32) as usize % SLOTS];
        let known = slot.as_ref().is_some_and(|slot| {
            slot.print == print
                && slot.len == text.len()
                && (text.len() <= SHORT || *slot.long == *text)
        });
        if !known {
            *slot = None;
        }
        let slot = slot.get_or_insert_with(|| Slot {
            print,
            len: text.len(),
            long: if text.len() <= SHORT { "" } else { text }.into(),
            object: ffi::string(py, text).unbind(),
        });
        slot.object.bind_borrowed(py)
    }
}

/// The first and the last up to eight bytes: with the length, all there is to know of a short text.
#[inline]
pub fn print(bytes: &[u8]) -> (u64, u64) {
    if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return (u64::from_le_bytes(*head), u64::from_le_bytes(*tail));
    }
    if let (Some(head), Some(tail)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return (
            u64::from(u32::from_le_bytes(*head)),
            u64::from(u32::from_le_bytes(*tail)),
        );
    }
    let some = |at: usize| bytes.get(at).map_or(0, |byte| u64::from(*byte));
    (some(0) | some(1) << 8 | some(2) << 16, 0)
}

/// Builds Python objects; keeps what can be used again.
#[derive(Default)]
pub struct Builder {
    keys: Known<1024>,
    /// Short strings that are no keys.
    texts: Known<512>,
    /// Longer texts of the run that is being built, by where they are: a run names most texts twice.
    once: Option<HashMap<(usize, usize), Py<PyString>>>,
    /// Of records, by number of their pattern.
    records: Vec<Prototype>,
    shapes: Shapes,
    /// Where strings with escapes are decoded.
    decoded: String,
    /// Those of the objects that are being built, the outer ones' first.
    values: Vec<Py<PyAny>>,
    /// Of text chunks; those that came last are first.
    chunks: Vec<Chunks>,
}

/// What is known of a pattern's records.
#[derive(Default)]
struct Prototype {
    /// The pattern's.
    number: u32,
    /// How many were made without a prototype.
    before: u32,
    /// None: there is none yet, or the records can't be made so.
    record: Option<Box<prototype::Record>>,
}

/// Patterns whose prototypes are kept. A pattern that comes takes the place of another.
const PATTERNS: u32 = 64;
/// Records of a pattern before a prototype is made, which costs about as much as ten more of them.
const BEFORE: u32 = 4;
/// Room for decoded strings that is kept.
const MAX_DECODED: usize = 1 << 20;
/// Kinds of text chunks that are kept. More than one, for threads that take turns.
const CHUNKS: usize = 4;

thread_local! {
    /// The builder that this thread is not using: the strings are the same few in all streams.
    static SPARE: Cell<Option<Box<Builder>>> = const { Cell::new(None) };
}

impl Builder {
    /// A builder for as long as the caller wants, to be given [back](Builder::put_back). Code of the user may run
    /// meanwhile, and build objects too: it gets another one.
    pub fn take() -> Box<Builder> {
        SPARE.take().unwrap_or_default()
    }

    pub fn put_back(self: Box<Builder>) {
        SPARE.set(Some(self));
    }

    /// Builds something.
    #[inline]
    pub fn with<T>(build: impl FnOnce(&mut Builder) -> T) -> T {
        SPARE.with(|spare| {
            let mut builder = spare.take().unwrap_or_default();
            let built = build(&mut builder);
            spare.set(Some(builder));
            built
        })
    }

    /// A string.
    #[inline]
    pub fn text<'py>(&mut self, py: Python<'py>, text: &str) -> Bound<'py, PyString> {
        if text.len() <= SHORT {
            self.texts.get(py, text).to_owned()
        } else {
            ffi::string(py, text)
        }
    }

    /// A string that comes again and again, as keys and names do.
    #[inline]
    pub fn name<'py>(&mut self, py: Python<'py>, name: &str) -> Bound<'py, PyString> {
        if name.len() <= MAX_KEY {
            self.keys.get(py, name).to_owned()
        } else {
            ffi::string(py, name)
        }
    }

    fn set<'py>(
        &mut self,
        dict: &Bound<'py, PyDict>,
        key: &str,
        value: Bound<'py, PyAny>,
    ) -> PyResult<()> {
        let py = dict.py();
        if key.len() <= MAX_KEY {
            ffi::set(dict, self.keys.get(py, key), value)
        } else {
            ffi::set(dict, ffi::string(py, key).as_borrowed(), value)
        }
    }

    // ---------------------------------------------------------------- JSON

    /// The object of a JSON value.
    #[inline]
    pub fn value<'py>(
        &mut self,
        py: Python<'py>,
        value: Value<'_>,
        layer: Layer,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The most frequent kinds first, and without calls.
        if let Some(text) = value.as_str() {
            return self.string(py, text, layer);
        }
        if let Some(value) = value.as_i64() {
            return Ok(value.into_pyobject(py)?.into_any());
        }
        self.other_value(py, value, layer)
    }

    fn other_value<'py>(
        &mut self,
        py: Python<'py>,
        value: Value<'_>,
        layer: Layer,
    ) -> PyResult<Bound<'py, PyAny>> {
        match value.view() {
            View::Null => Ok(py.None().into_bound(py)),
            View::Bool(value) => Ok(value.into_pyobject(py)?.to_owned().into_any()),
            View::Int(value) => Ok(value.into_pyobject(py)?.into_any()),
            View::Number => number(py, value, layer),
            View::String(text) => self.string(py, text, layer),
            View::Array(items) => {
                let objects = items.map(|item| self.value(py, item, layer));
                Ok(ffi::list(py, value.len(), objects)?.into_any())
            }
            View::Object(_) => self.object(py, value, layer),
        }
    }

    fn object<'py>(
        &mut self,
        py: Python<'py>,
        object: Value<'_>,
        layer: Layer,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(shape) = self.shapes.find(py, &mut self.keys, object)? else {
            let dict = PyDict::new(py);
            for (key, item) in object.entries() {
                let item = self.value(py, item, layer)?;
                if key.has_escapes() {
                    dict.set_item(self.string(py, key, layer)?, item)?;
                } else {
                    self.set(&dict, key.raw(), item)?;
                }
            }
            return Ok(dict.into_any());
        };
        // All values before the dict, as some of them run code of Python's.
        let first = self.values.len();
        let mut has_containers = false;
        for (_, item) in object.entries() {
            has_containers |= item.is_object() || item.is_array();
            match self.value(py, item, layer) {
                Ok(item) => self.values.push(item.unbind()),
                Err(error) => {
                    self.values.truncate(first);
                    return Err(error);
                }
            }
        }
        let cast = shape.mold.cast(py)?;
        for (seat, item) in self.values.drain(first..).enumerate() {
            cast.put(seat, item.into_bound(py))?;
        }
        let dict = match has_containers {
            true => cast.watched(),
            false => cast.plain(),
        };
        Ok(dict.into_any())
    }

    /// The dict of a record.
    pub fn record<'py>(
        &mut self,
        py: Python<'py>,
        record: &Kept,
        given: Option<&mut Given>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some((pattern, slots)) = record.slots() else {
            return self.value(py, record.value(), Layer::Raw);
        };
        let number = pattern.number();
        let at = (number % PATTERNS) as usize;
        if self.records.is_empty() {
            let places = PATTERNS as usize;
            self.records.resize_with(places, Prototype::default);
        }
        let known = &mut self.records[at];
        if known.number != number {
            *known = Prototype {
                number,
                ..Prototype::default()
            };
        }
        if known.record.is_none() {
            known.before = known.before.saturating_add(1);
            if known.before == BEFORE {
                let new = prototype::Record::new(py, self, record)?;
                self.records[at].record = new.map(Box::new);
            }
        }
        // Taken, as it needs the builder to make something.
        let Some(mut prototype) = self.records[at].record.take() else {
            return self.value(py, record.value(), Layer::Raw);
        };
        let made = prototype.make(py, self, given, slots);
        self.records[at].record = Some(prototype);
        made
    }

    #[inline(always)]
    fn string<'py>(
        &mut self,
        py: Python<'py>,
        text: Str<'_>,
        layer: Layer,
    ) -> PyResult<Bound<'py, PyAny>> {
        if !text.has_escapes() {
            return Ok(self.text(py, text.raw()).into_any());
        }
        self.escaped(py, text, layer)
    }

    fn escaped<'py>(
        &mut self,
        py: Python<'py>,
        text: Str<'_>,
        layer: Layer,
    ) -> PyResult<Bound<'py, PyAny>> {
        if layer == Layer::Raw && text.is_lossy() {
            let bytes = PyBytes::new(py, &text.wtf8());
            let text =
                PyString::from_encoded_object(&bytes, Some(c"utf-8"), Some(c"surrogatepass"))?;
            return Ok(text.into_any());
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        let object = self.text(py, text.decode_in(&mut decoded)).into_any();
        if decoded.capacity() <= MAX_DECODED {
            self.decoded = decoded;
        }
        Ok(object)
    }

    /// The dict of a run, in which the same text is the same object.
    pub fn run<'py>(&mut self, py: Python<'py>, run: &Data<'_>) -> PyResult<Bound<'py, PyAny>> {
        self.once = Some(HashMap::new());
        let run = self.data(py, run);
        self.once = None;
        run
    }

    /// A text of outgoing data.
    fn data_text<'py>(&mut self, py: Python<'py>, text: &str) -> Bound<'py, PyString> {
        match &mut self.once {
            Some(once) if text.len() > SHORT => {
                let known = once.entry((text.as_ptr().addr(), text.len()));
                let known = known.or_insert_with(|| ffi::string(py, text).unbind());
                known.bind(py).clone()
            }
            _ => self.text(py, text),
        }
    }

    fn layer(&self) -> Layer {
        match self.once {
            Some(_) => Layer::Run,
            None => Layer::Event,
        }
    }

    /// The object of outgoing data.
    pub fn data<'py>(&mut self, py: Python<'py>, data: &Data<'_>) -> PyResult<Bound<'py, PyAny>> {
        match data {
            Data::Null => Ok(py.None().into_bound(py)),
            Data::Bool(value) => Ok(value.into_pyobject(py)?.to_owned().into_any()),
            Data::Number(value) => number_object(py, *value),
            Data::Text(text) => Ok(self.data_text(py, text).into_any()),
            Data::Wire(value) => self.value(py, *value, self.layer()),
            Data::Raw(text) => {
                let mut tape = Tape::new();
                match tape.parse_lax(text) {
                    Ok(doc) => self.value(py, doc.root(), self.layer()),
                    Err(_) => Ok(py.None().into_bound(py)), // can't be: it was written by Data::write
                }
            }
            Data::List(items) => {
                let objects = items.iter().map(|item| self.data(py, item));
                Ok(ffi::list(py, items.len(), objects)?.into_any())
            }
            Data::Map(members) => {
                let dict = PyDict::new(py);
                for (key, value) in members {
                    let value = self.data(py, value)?;
                    self.set(&dict, key, value)?;
                }
                Ok(dict.into_any())
            }
        }
    }

    // ---------------------------------------------------------------- events

    /// The dict of an event; with `spans`, its `extra` says where its record stands.
    pub fn event<'py>(
        &mut self,
        py: Python<'py>,
        event: &Event<'_>,
        spans: bool,
        given: &mut Given,
    ) -> PyResult<Bound<'py, PyDict>> {
        let Update::Chunk(chunk) = &event.update else {
            return self.new_event(py, event, spans);
        };
        if spans || !Chunks::may_be(event, chunk) {
            return self.new_event(py, event, spans);
        }
        let mut known = std::mem::take(&mut self.chunks);
        let made = self.chunk(py, &mut known, given, event, chunk);
        self.chunks = known;
        made
    }

    /// The dict of a text chunk.
    #[inline]
    fn chunk<'py>(
        &mut self,
        py: Python<'py>,
        known: &mut Vec<Chunks>,
        given: &mut Given,
        event: &Event<'_>,
        chunk: &Chunk<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let same = known.iter().find(|known| known.repeats(event, chunk));
        if let Some(known) = same
            && let Some(made) = known.make(py, self, given, chunk)?
        {
            return Ok(made);
        }
        self.other_chunk(py, known, given, event, chunk)
    }

    #[cold]
    fn other_chunk<'py>(
        &mut self,
        py: Python<'py>,
        known: &mut Vec<Chunks>,
        given: &mut Given,
        event: &Event<'_>,
        chunk: &Chunk<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let Some(known) = known.iter_mut().find(|known| known.has(event, chunk)) else {
            known.truncate(CHUNKS - 1);
            known.insert(0, Chunks::new(event, chunk));
            return self.new_event(py, event, false);
        };
        known.follow(py, self, event)?;
        match known.make(py, self, given, chunk)? {
            Some(made) => Ok(made),
            None => {
                let made = self.new_event(py, event, false)?;
                known.learn(event, &made)?;
                Ok(made)
            }
        }
    }

    fn new_event<'py>(
        &mut self,
        py: Python<'py>,
        event: &Event<'_>,
        spans: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let update = PyDict::new(py);
        let kind = self.name(py, event.kind().name());
        put(&update, intern!(py, "sessionUpdate"), kind)?;
        let mut retract = 0;
        match &event.update {
            Update::Chunk(chunk) => {
                retract = chunk.retract;
                let content = match &chunk.content {
                    Content::Text(text) => self.text_block(py, text)?,
                    Content::Image(image) => self.image_block(py, image)?,
                };
                put(&update, intern!(py, "content"), content)?;
            }
            Update::ToolCall(call) => {
                put(&update, intern!(py, "toolCallId"), self.text(py, call.id))?;
                put(&update, intern!(py, "title"), self.text(py, call.title))?;
                put(&update, intern!(py, "kind"), self.name(py, call.kind))?;
                put(&update, intern!(py, "status"), self.name(py, call.status))?;
                if let Some(name) = call.name {
                    put(&update, intern!(py, "toolName"), self.name(py, name))?;
                }
                if call.input.is_map() {
                    let input = self.data(py, call.input)?;
                    put(&update, intern!(py, "rawInput"), input)?;
                }
                self.details(&update, call.content, call.locations)?;
            }
            Update::ToolCallUpdate(call) => {
                put(&update, intern!(py, "toolCallId"), self.text(py, call.id))?;
                if let Some(status) = call.status {
                    put(&update, intern!(py, "status"), self.name(py, status))?;
                }
                if let Some(title) = call.title {
                    put(&update, intern!(py, "title"), self.text(py, title))?;
                }
                self.details(&update, call.content, call.locations)?;
                if let Some(raw) = call.raw_output {
                    put(&update, intern!(py, "rawOutput"), self.data(py, raw)?)?;
                }
            }
            Update::Plan(entries) => {
                let objects = entries.iter().map(|entry| self.plan_entry(py, entry));
                let list = ffi::list(py, entries.len(), objects)?;
                put(&update, intern!(py, "entries"), list)?;
            }
            Update::Error { message, fatal, .. } => {
                put(&update, intern!(py, "message"), self.text(py, message))?;
                update.set_item(intern!(py, "fatal"), fatal)?;
            }
            Update::Usage(usage) => {
                let scope = if usage.run { "run" } else { "call" };
                put(&update, intern!(py, "scope"), self.name(py, scope))?;
                let tokens = self.data(py, &usage.tokens.to_data())?;
                put(&update, intern!(py, "usage"), tokens)?;
            }
            Update::State(state) => {
                put(&update, intern!(py, "state"), self.name(py, state.name))?;
                for (key, value) in &state.details {
                    let value = self.data(py, value)?;
                    self.set(&update, key, value)?;
                }
            }
        }
        let dict = PyDict::new(py);
        put(&dict, intern!(py, "update"), update)?;
        let span = (spans && event.place.line > 0).then_some(event.place);
        self.stamp(&dict, event.stamp, retract, span)?;
        Ok(dict)
    }

    fn stamp(
        &mut self,
        dict: &Bound<'_, PyDict>,
        stamp: &Stamp<'_>,
        retract: usize,
        span: Option<Place>,
    ) -> PyResult<()> {
        let py = dict.py();
        for (key, value) in prototype::parts(stamp) {
            if let Some(value) = value {
                put(dict, key(py), self.name(py, value))?;
            }
        }
        if stamp.extra.is_empty() && retract == 0 && span.is_none() {
            return Ok(());
        }
        let extra = PyDict::new(py);
        for (key, value) in &stamp.extra {
            let value = self.data(py, value)?;
            self.set(&extra, key, value)?;
        }
        if retract > 0 {
            extra.set_item(intern!(py, "retract"), retract)?;
        }
        if let Some(place) = span {
            let span = PyDict::new(py);
            span.set_item(intern!(py, "line"), place.line)?;
            span.set_item(intern!(py, "offset"), place.offset)?;
            span.set_item(intern!(py, "bytes"), place.size)?;
            put(&extra, intern!(py, "span"), span)?;
        }
        put(dict, intern!(py, "extra"), extra)
    }

    fn details(
        &mut self,
        update: &Bound<'_, PyDict>,
        content: &[Item<'_>],
        locations: &[Location<'_>],
    ) -> PyResult<()> {
        let py = update.py();
        if !content.is_empty() {
            let objects = content.iter().map(|item| self.content_item(py, item));
            let list = ffi::list(py, content.len(), objects)?;
            put(update, intern!(py, "content"), list)?;
        }
        if !locations.is_empty() {
            let objects = locations.iter().map(|location| {
                let dict = PyDict::new(py);
                put(&dict, intern!(py, "path"), self.text(py, &location.path))?;
                if let Some(line) = location.line {
                    dict.set_item(intern!(py, "line"), line)?;
                }
                Ok(dict.into_any())
            });
            let list = ffi::list(py, locations.len(), objects)?;
            put(update, intern!(py, "locations"), list)?;
        }
        Ok(())
    }

    fn content_item<'py>(
        &mut self,
        py: Python<'py>,
        item: &Item<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(py);
        let content = match item {
            Item::Text(text) => self.text_block(py, text)?,
            Item::Image(image) => self.image_block(py, image)?,
            Item::Diff { path, old, new } => {
                put(&dict, intern!(py, "type"), intern!(py, "diff").clone())?;
                put(&dict, intern!(py, "path"), self.text(py, path))?;
                dict.set_item(intern!(py, "oldText"), old.as_deref())?;
                put(&dict, intern!(py, "newText"), self.text(py, new))?;
                return Ok(dict.into_any());
            }
        };
        put(&dict, intern!(py, "type"), intern!(py, "content").clone())?;
        put(&dict, intern!(py, "content"), content)?;
        Ok(dict.into_any())
    }

    fn text_block<'py>(&mut self, py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        put(&dict, intern!(py, "type"), intern!(py, "text").clone())?;
        put(&dict, intern!(py, "text"), self.text(py, text))?;
        Ok(dict)
    }

    fn image_block<'py>(
        &mut self,
        py: Python<'py>,
        image: &Image<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        put(&dict, intern!(py, "type"), intern!(py, "image").clone())?;
        put(&dict, intern!(py, "data"), self.text(py, &image.data))?;
        put(&dict, intern!(py, "mimeType"), self.text(py, &image.mime))?;
        if let Some(uri) = &image.uri {
            put(&dict, intern!(py, "uri"), self.text(py, uri))?;
        }
        Ok(dict)
    }

    fn plan_entry<'py>(
        &mut self,
        py: Python<'py>,
        entry: &PlanEntry<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let dict = PyDict::new(py);
        put(&dict, intern!(py, "content"), self.text(py, &entry.content))?;
        put(&dict, intern!(py, "status"), self.name(py, &entry.status))?;
        put(
            &dict,
            intern!(py, "priority"),
            self.name(py, &entry.priority),
        )?;
        Ok(dict.into_any())
    }
}

/// `dict[key] = value` for a key that is always the same.
fn put<'py, T>(
    dict: &Bound<'py, PyDict>,
    key: &Bound<'py, PyString>,
    value: Bound<'py, T>,
) -> PyResult<()> {
    ffi::set(dict, key.as_borrowed(), value.into_any())
}

fn number_object(py: Python<'_>, number: Number) -> PyResult<Bound<'_, PyAny>> {
    match number {
        Number::Int(value) => Ok(value.into_pyobject(py)?.into_any()),
        Number::Float(value) => Ok(PyFloat::new(py, value).into_any()),
    }
}

/// A number that is no integer of 64 bits.
fn number<'py>(py: Python<'py>, value: Value<'_>, layer: Layer) -> PyResult<Bound<'py, PyAny>> {
    if !value.is_integer() {
        let number = value.as_f64().unwrap_or(f64::NAN);
        if number.is_nan() {
            // one object, so that two readings of a stream compare equal
            static NAN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let nan = NAN.get_or_try_init(py, || {
                PyModule::import(py, "math")?
                    .getattr("nan")
                    .map(Bound::unbind)
            })?;
            return Ok(nan.bind(py).clone());
        }
        return Ok(PyFloat::new(py, number).into_any());
    }
    if let Some(number) = value.as_u64() {
        return Ok(number.into_pyobject(py)?.into_any());
    }
    let digits = value.number().unwrap_or("0");
    if layer == Layer::Event {
        return Ok(ffi::string(py, digits).into_any());
    }
    // Integers of any size are exact; Python's own conversion stops at some thousand digits.
    static CONVERT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let convert = CONVERT.get_or_try_init(py, || {
        PyModule::import(py, "headrace.pure.json")?
            .getattr("integer")
            .map(Bound::unbind)
    })?;
    let number = convert.bind(py).call1((digits,))?;
    Ok(number.cast_into::<PyInt>()?.into_any())
}
