//! Python objects from JSON values, data and events.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use headrace_core::data::Data;
use headrace_core::event::{Content, Event, Image, Item, Location, PlanEntry, Stamp, Update};
use headrace_core::json::{Kind, Str, Tape, Value};
use headrace_core::number::Number;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyString};

/// How text that no UTF-8 can say becomes a `str`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Halves {
    /// U+FFFD: events and runs can always be encoded.
    Replace,
    /// As `json.loads` gives it: the raw layer.
    Keep,
}

const SLOTS: usize = 1024;
const MAX_KEY: usize = 64;

/// Object keys that were seen, as Python strings: agent streams say the same few keys over and over.
pub struct Keys {
    slots: Box<[Option<Known>]>,
}

/// A key and its Python string.
type Known = (Box<str>, Py<PyString>);

impl Default for Keys {
    fn default() -> Self {
        Keys {
            slots: (0..SLOTS).map(|_| None).collect(),
        }
    }
}

impl Keys {
    fn get<'py>(&mut self, py: Python<'py>, key: &str) -> Bound<'py, PyString> {
        if key.len() > MAX_KEY {
            return PyString::new(py, key);
        }
        let slot = &mut self.slots[hash(key.as_bytes()) % SLOTS];
        if let Some((known, object)) = slot
            && **known == *key
        {
            return object.bind(py).clone();
        }
        let object = PyString::new(py, key);
        *slot = Some((key.into(), object.clone().unbind()));
        object
    }
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> usize {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    }) as usize
}

/// Builds Python objects; keeps what can be used again.
#[derive(Default)]
pub struct Builder {
    keys: Keys,
}

/// The builder that the whole process shares: keys are the same few in all streams.
static SHARED: LazyLock<Mutex<Builder>> = LazyLock::new(Mutex::default);

impl Builder {
    /// The shared builder, for as long as the guard is held.
    pub fn shared() -> MutexGuard<'static, Builder> {
        // The GIL is held, so that nobody waits here; building calls no code that could come back here.
        SHARED.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---------------------------------------------------------------- JSON

    /// The object of a JSON value.
    pub fn value<'py>(
        &mut self,
        py: Python<'py>,
        value: Value<'_>,
        halves: Halves,
    ) -> PyResult<Bound<'py, PyAny>> {
        match value.kind() {
            Kind::Null => Ok(py.None().into_bound(py)),
            Kind::Bool => Ok((value.as_bool() == Some(true))
                .into_pyobject(py)?
                .to_owned()
                .into_any()),
            Kind::Number => number(py, value),
            Kind::String => match value.as_str() {
                Some(text) => string(py, text, halves),
                None => Ok(py.None().into_bound(py)),
            },
            Kind::Array => {
                let list = PyList::empty(py);
                for item in value.items() {
                    list.append(self.value(py, item, halves)?)?;
                }
                Ok(list.into_any())
            }
            Kind::Object => {
                let dict = PyDict::new(py);
                for (key, item) in value.entries() {
                    let item = self.value(py, item, halves)?;
                    if key.has_escapes() {
                        dict.set_item(string(py, key, halves)?, item)?;
                    } else {
                        dict.set_item(self.keys.get(py, key.raw()), item)?;
                    }
                }
                Ok(dict.into_any())
            }
        }
    }

    /// The object of outgoing data.
    pub fn data<'py>(&mut self, py: Python<'py>, data: &Data<'_>) -> PyResult<Bound<'py, PyAny>> {
        match data {
            Data::Null => Ok(py.None().into_bound(py)),
            Data::Bool(value) => Ok(value.into_pyobject(py)?.to_owned().into_any()),
            Data::Number(value) => number_object(py, *value),
            Data::Text(text) => Ok(PyString::new(py, text).into_any()),
            Data::Wire(value) => self.value(py, *value, Halves::Replace),
            Data::Raw(text) => {
                let mut tape = Tape::new();
                match tape.parse_lax(text) {
                    Ok(doc) => self.value(py, doc.root(), Halves::Replace),
                    Err(_) => Ok(py.None().into_bound(py)), // can't be: it was written by Data::write
                }
            }
            Data::List(items) => {
                let list = PyList::empty(py);
                for item in items {
                    list.append(self.data(py, item)?)?;
                }
                Ok(list.into_any())
            }
            Data::Map(members) => {
                let dict = PyDict::new(py);
                for (key, value) in members {
                    let value = self.data(py, value)?;
                    dict.set_item(self.keys.get(py, key), value)?;
                }
                Ok(dict.into_any())
            }
        }
    }

    // ---------------------------------------------------------------- events

    /// The dict of an event.
    pub fn event<'py>(
        &mut self,
        py: Python<'py>,
        event: &Event<'_>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let update = PyDict::new(py);
        update.set_item(
            intern!(py, "sessionUpdate"),
            self.keys.get(py, event.kind().name()),
        )?;
        let mut retract = 0;
        match &event.update {
            Update::Chunk(chunk) => {
                retract = chunk.retract;
                let content = match &chunk.content {
                    Content::Text(text) => text_block(py, text)?,
                    Content::Image(image) => image_block(py, image)?,
                };
                update.set_item(intern!(py, "content"), content)?;
            }
            Update::ToolCall(call) => {
                update.set_item(intern!(py, "toolCallId"), call.id)?;
                update.set_item(intern!(py, "title"), call.title)?;
                update.set_item(intern!(py, "kind"), self.keys.get(py, call.kind))?;
                update.set_item(intern!(py, "status"), self.keys.get(py, call.status))?;
                if let Some(name) = call.name {
                    update.set_item(intern!(py, "toolName"), self.keys.get(py, name))?;
                }
                if call.input.is_map() {
                    update.set_item(intern!(py, "rawInput"), self.data(py, call.input)?)?;
                }
                details(py, &update, call.content, call.locations)?;
            }
            Update::ToolCallUpdate(call) => {
                update.set_item(intern!(py, "toolCallId"), call.id)?;
                if let Some(status) = call.status {
                    update.set_item(intern!(py, "status"), self.keys.get(py, status))?;
                }
                if let Some(title) = call.title {
                    update.set_item(intern!(py, "title"), title)?;
                }
                details(py, &update, call.content, call.locations)?;
                if let Some(raw) = call.raw_output {
                    update.set_item(intern!(py, "rawOutput"), self.data(py, raw)?)?;
                }
            }
            Update::Plan(entries) => {
                let list = PyList::empty(py);
                for entry in *entries {
                    list.append(plan_entry(py, entry)?)?;
                }
                update.set_item(intern!(py, "entries"), list)?;
            }
            Update::Error { message, fatal, .. } => {
                update.set_item(intern!(py, "message"), message)?;
                update.set_item(intern!(py, "fatal"), fatal)?;
            }
            Update::Usage(usage) => {
                let scope = if usage.run { "run" } else { "call" };
                update.set_item(intern!(py, "scope"), self.keys.get(py, scope))?;
                let tokens = self.data(py, &usage.tokens.to_data())?;
                update.set_item(intern!(py, "usage"), tokens)?;
            }
            Update::State(state) => {
                update.set_item(intern!(py, "state"), self.keys.get(py, state.name))?;
                for (key, value) in &state.details {
                    let value = self.data(py, value)?;
                    update.set_item(self.keys.get(py, key), value)?;
                }
            }
        }
        let dict = PyDict::new(py);
        dict.set_item(intern!(py, "update"), update)?;
        self.stamp(py, &dict, event.stamp, retract)?;
        Ok(dict)
    }

    fn stamp(
        &mut self,
        py: Python<'_>,
        dict: &Bound<'_, PyDict>,
        stamp: &Stamp<'_>,
        retract: usize,
    ) -> PyResult<()> {
        for (key, value) in [
            (intern!(py, "sessionId"), &stamp.session_id),
            (intern!(py, "messageId"), &stamp.message_id),
            (intern!(py, "timestamp"), &stamp.timestamp),
            (intern!(py, "model"), &stamp.model),
            (intern!(py, "parentToolCallId"), &stamp.parent),
        ] {
            if let Some(value) = value {
                dict.set_item(key, PyString::new(py, value))?;
            }
        }
        if stamp.extra.is_empty() && retract == 0 {
            return Ok(());
        }
        let extra = PyDict::new(py);
        for (key, value) in &stamp.extra {
            extra.set_item(PyString::new(py, key), self.data(py, value)?)?;
        }
        if retract > 0 {
            extra.set_item(intern!(py, "retract"), retract)?;
        }
        dict.set_item(intern!(py, "extra"), extra)
    }
}

fn details(
    py: Python<'_>,
    update: &Bound<'_, PyDict>,
    content: &[Item<'_>],
    locations: &[Location<'_>],
) -> PyResult<()> {
    if !content.is_empty() {
        let list = PyList::empty(py);
        for item in content {
            list.append(content_item(py, item)?)?;
        }
        update.set_item(intern!(py, "content"), list)?;
    }
    if !locations.is_empty() {
        let list = PyList::empty(py);
        for location in locations {
            let dict = PyDict::new(py);
            dict.set_item(intern!(py, "path"), &*location.path)?;
            if let Some(line) = location.line {
                dict.set_item(intern!(py, "line"), line)?;
            }
            list.append(dict)?;
        }
        update.set_item(intern!(py, "locations"), list)?;
    }
    Ok(())
}

fn content_item<'py>(py: Python<'py>, item: &Item<'_>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let content = match item {
        Item::Text(text) => text_block(py, text)?,
        Item::Image(image) => image_block(py, image)?,
        Item::Diff { path, old, new } => {
            dict.set_item(intern!(py, "type"), intern!(py, "diff"))?;
            dict.set_item(intern!(py, "path"), &**path)?;
            dict.set_item(intern!(py, "oldText"), old.as_deref())?;
            dict.set_item(intern!(py, "newText"), &**new)?;
            return Ok(dict);
        }
    };
    dict.set_item(intern!(py, "type"), intern!(py, "content"))?;
    dict.set_item(intern!(py, "content"), content)?;
    Ok(dict)
}

fn text_block<'py>(py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "type"), intern!(py, "text"))?;
    dict.set_item(intern!(py, "text"), text)?;
    Ok(dict)
}

fn image_block<'py>(py: Python<'py>, image: &Image<'_>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "type"), intern!(py, "image"))?;
    dict.set_item(intern!(py, "data"), &*image.data)?;
    dict.set_item(intern!(py, "mimeType"), &*image.mime)?;
    if let Some(uri) = &image.uri {
        dict.set_item(intern!(py, "uri"), &**uri)?;
    }
    Ok(dict)
}

fn plan_entry<'py>(py: Python<'py>, entry: &PlanEntry<'_>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "content"), &*entry.content)?;
    dict.set_item(intern!(py, "status"), entry.status)?;
    dict.set_item(intern!(py, "priority"), entry.priority)?;
    Ok(dict)
}

fn number_object(py: Python<'_>, number: Number) -> PyResult<Bound<'_, PyAny>> {
    match number {
        Number::Int(value) => Ok(value.into_pyobject(py)?.into_any()),
        Number::Float(value) => Ok(PyFloat::new(py, value).into_any()),
    }
}

fn number<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
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
    if let Some(number) = value.as_i64() {
        return Ok(number.into_pyobject(py)?.into_any());
    }
    if let Some(number) = value.as_u64() {
        return Ok(number.into_pyobject(py)?.into_any());
    }
    // Integers of any size are exact; Python's own conversion stops at some thousand digits.
    static CONVERT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let convert = CONVERT.get_or_try_init(py, || {
        PyModule::import(py, "headrace.pure.json")?
            .getattr("integer")
            .map(Bound::unbind)
    })?;
    let digits = value.number().unwrap_or("0");
    let number = convert.bind(py).call1((digits,))?;
    Ok(number.cast_into::<PyInt>()?.into_any())
}

fn string<'py>(py: Python<'py>, text: Str<'_>, halves: Halves) -> PyResult<Bound<'py, PyAny>> {
    if !text.has_escapes() {
        return Ok(PyString::new(py, text.raw()).into_any());
    }
    if halves == Halves::Keep && text.is_lossy() {
        let bytes = PyBytes::new(py, &text.wtf8());
        let text = PyString::from_encoded_object(&bytes, Some(c"utf-8"), Some(c"surrogatepass"))?;
        return Ok(text.into_any());
    }
    Ok(PyString::new(py, &text.lossy()).into_any())
}
