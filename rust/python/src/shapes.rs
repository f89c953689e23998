//! Objects with the same keys in the same order, as agent streams have many: their dicts are copies of one mold.

use std::rc::Rc;

use headrace_core::json::{Str, Value};
use pyo3::prelude::*;

use crate::mold::{Mold, Part};
use crate::objects::{Known, MAX_KEY, SHORT, print};

/// Objects with more members are made key by key.
const MOST: usize = 32;
/// Shapes that are kept. One that comes takes the place of another.
const SHAPES: usize = 256;
/// Objects of a shape before a mold is made, which costs about as much as ten more of them.
const BEFORE: u32 = 8;

/// The shapes that were seen.
#[derive(Default)]
pub struct Shapes {
    places: Vec<Place>,
}

#[derive(Clone, Default)]
struct Place {
    hash: u64,
    /// How many objects with that hash came.
    seen: u32,
    shape: Option<Rc<Shape>>,
}

/// The keys of objects, and the mold of their dicts: its seats are those of the keys.
pub struct Shape {
    keys: Box<[Key]>,
    pub mold: Mold,
}

struct Key {
    print: (u64, u64),
    len: usize,
    /// The key, if it is not short.
    long: Box<[u8]>,
}

impl Key {
    #[inline(always)]
    fn is(&self, key: Str<'_>) -> bool {
        let raw = key.raw().as_bytes();
        raw.len() == self.len
            && !key.has_escapes()
            && print(raw) == self.print
            && (raw.len() <= SHORT || *raw == *self.long)
    }
}

impl Shapes {
    /// The shape of an object, if many before it had the same.
    #[inline]
    pub fn find(
        &mut self,
        py: Python<'_>,
        names: &mut Known<1024>,
        object: Value<'_>,
    ) -> PyResult<Option<Rc<Shape>>> {
        if object.len() > MOST || object.is_empty() {
            return Ok(None);
        }
        let mut hash = object.len() as u64;
        for (key, _) in object.entries() {
            let (head, tail) = print(key.raw().as_bytes());
            let word = head ^ tail.rotate_left(29) ^ key.raw().len() as u64;
            hash = (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        if self.places.is_empty() {
            self.places.resize(SHAPES, Place::default());
        }
        let place = &mut self.places[(hash >> 32) as usize % SHAPES];
        if place.hash != hash {
            *place = Place {
                hash,
                ..Place::default()
            };
        }
        if let Some(shape) = &place.shape {
            let mut keys = shape.keys.iter().zip(object.entries());
            let same =
                shape.keys.len() == object.len() && keys.all(|(known, (key, _))| known.is(key));
            return Ok(same.then(|| shape.clone()));
        }
        place.seen = place.seen.saturating_add(1);
        if place.seen == BEFORE {
            place.shape = learn(py, names, object)?.map(Rc::new);
        }
        Ok(None)
    }
}

/// The shape of an object; None if its keys are repeated, have escapes or are long.
#[cold]
fn learn(py: Python<'_>, names: &mut Known<1024>, object: Value<'_>) -> PyResult<Option<Shape>> {
    let keys: Vec<&str> = object.entries().map(|(key, _)| key.raw()).collect();
    let no_name = |(at, key): (usize, &&str)| key.len() > MAX_KEY || keys[..at].contains(key);
    let has_escapes = object.entries().any(|(key, _)| key.has_escapes());
    if has_escapes || keys.iter().enumerate().any(no_name) {
        return Ok(None);
    }
    let parts = keys
        .iter()
        .map(|key| (names.get(py, key).to_owned(), Part::Seat));
    let mold = Mold::new(py, parts)?;
    let keys = keys.into_iter().map(|key| Key {
        print: print(key.as_bytes()),
        len: key.len(),
        long: if key.len() <= SHORT { "" } else { key }.as_bytes().into(),
    });
    Ok(Some(Shape {
        keys: keys.collect(),
        mold,
    }))
}
