//! Dicts made by copying one of the same keys and putting other values into the copy, without a look-up.
//!
//! CPython copies a dict by copying the table of its entries, so that a key's value is equally far into the table of
//! each copy. How far is not computed from any version's layout: it is looked for, and tried on a copy. Where it is not
//! found, or not where it was looked for, values are set by their keys.

use pyo3::ffi::{self, PyDictObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyFloat, PyString};

use crate::ffi::{copy, set};

/// A dict that nobody else has, with *seats*: keys whose values are other ones in each copy.
pub struct Mold {
    dict: Py<PyDict>,
    seats: Box<[Seat]>,
    /// What is the same in the tables of all copies. Nothing, if it is not known where the seats are.
    fixed: Box<[Block]>,
}

/// Words of a table.
struct Block {
    /// How far they are into it.
    at: usize,
    words: [usize; BLOCK],
    /// No bits of seats.
    mask: [usize; BLOCK],
}

struct Seat {
    key: Py<PyString>,
    /// Bytes from the start of the table, in this dict and in its copies.
    at: Option<usize>,
}

/// Words that are compared at a time. Each table has so many: the first are, in the versions of CPython from 3.10 to 3.14,
/// its count of owners, its size and kind, and how many entries there are. In later ones dicts are not looked into.
const BLOCK: usize = 4;

/// A value of a mold.
pub enum Part<'py> {
    Same(Bound<'py, PyAny>),
    Seat,
}

impl Mold {
    /// A mold of dicts with these keys, all of them different. What is the same in all must be what can be in many dicts.
    pub fn new<'py>(
        py: Python<'py>,
        parts: impl IntoIterator<Item = (Bound<'py, PyString>, Part<'py>)>,
    ) -> PyResult<Mold> {
        let dict = PyDict::new(py);
        let mut probes = Vec::new();
        for (key, part) in parts {
            match part {
                Part::Same(value) => set(&dict, key.as_borrowed(), value)?,
                Part::Seat => {
                    // a value that is nowhere else
                    let probe = PyFloat::new(py, 0.5).into_any();
                    set(&dict, key.as_borrowed(), probe.clone())?;
                    probes.push((key, probe));
                }
            }
        }
        let found = find(&dict, &probes)?;
        let (places, words) = found.unzip();
        let fixed = match (&places, words) {
            (Some(places), Some(words))
                if words >= BLOCK && Interpreter::get(py).has_known_tables =>
            {
                blocks(&dict, places, words)
            }
            _ => Vec::new(),
        };
        let seat = |(number, (key, _)): (usize, (Bound<'py, PyString>, _))| Seat {
            key: key.unbind(),
            at: places.as_ref().map(|places| places[number]),
        };
        let mold = Mold {
            seats: probes.into_iter().enumerate().map(seat).collect(),
            dict: dict.unbind(),
            fixed: fixed.into(),
        };
        for seat in 0..mold.seats.len() {
            mold.put(py, seat, py.None().into_bound(py))?;
        }
        // SAFETY: a live dict. From now on `gc.get_objects` does not show it either.
        unsafe { ffi::PyObject_GC_UnTrack(mold.dict.as_ptr().cast()) };
        Ok(mold)
    }

    /// Puts a value at a seat of the mold itself: one that can be in many dicts, and no container.
    #[inline(always)]
    pub fn put<'py>(&self, py: Python<'py>, seat: usize, value: Bound<'py, PyAny>) -> PyResult<()> {
        // SAFETY: the seat is one of this dict's, which never changed but at seats.
        unsafe { put(self.dict.bind(py), &self.seats[seat], value) }
    }

    /// Whether it is known how copies look inside, so that one can be [used again](Mold::used).
    pub fn is_open(&self) -> bool {
        !self.fixed.is_empty()
    }

    /// What is at a seat of the mold itself, if that is known.
    #[inline(always)]
    pub fn at<'py>(&self, py: Python<'py>, seat: usize) -> Option<Borrowed<'_, 'py, PyAny>> {
        let (dict, mold) = (self.dict.bind_borrowed(py), self);
        Used { dict, mold }.at(seat)
    }

    /// An object that is as a copy was when it was made, but for the values at the seats, and that nobody has but one
    /// owner.
    #[inline(always)]
    pub fn used<'m, 'd, 'py>(
        &'m self,
        object: Borrowed<'d, 'py, PyAny>,
    ) -> Option<Used<'m, 'd, 'py>> {
        let dict = object.cast_exact::<PyDict>().ok()?;
        // SAFETY: a live object.
        let has_one_owner = unsafe { ffi::Py_REFCNT(object.as_ptr()) } == 1;
        if !has_one_owner || !self.is_open() {
            return None;
        }
        for block in &self.fixed {
            if !block.is_in(&dict) {
                return None;
            }
        }
        Some(Used { dict, mold: self })
    }

    /// A copy. No code of Python's may run before it is done, as other threads could find it.
    #[inline]
    pub fn cast<'m, 'py>(&'m self, py: Python<'py>) -> PyResult<Cast<'m, 'py>> {
        Ok(Cast {
            dict: copy(self.dict.bind(py))?,
            seats: &self.seats,
        })
    }
}

/// A new copy of a mold, which nobody has seen yet.
pub struct Cast<'m, 'py> {
    dict: Bound<'py, PyDict>,
    seats: &'m [Seat],
}

impl<'py> Cast<'_, 'py> {
    /// Puts a value at a seat. If it is a dict or list, the copy must be [watched](Cast::watched).
    #[inline(always)]
    pub fn put(&self, seat: usize, value: Bound<'py, PyAny>) -> PyResult<()> {
        // SAFETY: the seat is one of the mold's, and the dict is a copy that only seats were changed of.
        unsafe { put(&self.dict, &self.seats[seat], value) }
    }

    /// The dict, if it has no containers in it.
    #[inline]
    pub fn plain(self) -> Bound<'py, PyDict> {
        self.dict
    }

    /// The dict, for the garbage collector to look into.
    #[inline]
    pub fn watched(self) -> Bound<'py, PyDict> {
        let dict = self.dict.as_ptr();
        // SAFETY: a dict that is whole. Most versions of CPython do this when a container is set in a dict, and others
        // when it is made.
        unsafe {
            if ffi::PyObject_GC_IsTracked(dict) == 0 {
                ffi::PyObject_GC_Track(dict.cast());
            }
        }
        self.dict
    }
}

/// A copy of a mold that is used again.
#[derive(Clone, Copy)]
pub struct Used<'m, 'd, 'py> {
    dict: Borrowed<'d, 'py, PyDict>,
    mold: &'m Mold,
}

impl<'d, 'py> Used<'_, 'd, 'py> {
    /// What is at a seat.
    #[inline(always)]
    pub fn at(&self, seat: usize) -> Option<Borrowed<'d, 'py, PyAny>> {
        let at = self.mold.seats[seat].at?;
        // SAFETY: as `find` has seen, and `used` again, there is a value of the dict, or null where it was removed.
        unsafe {
            let value = table(&self.dict).byte_add(at).read();
            Borrowed::from_ptr_or_opt(self.dict.py(), value)
        }
    }

    /// Puts what the mold has at a seat there. False if it does matter that what is there goes.
    #[inline(always)]
    pub fn renew(&self, seat: usize) -> bool {
        let (Some(old), Some(new)) = (self.at(seat), self.mold.at(self.dict.py(), seat)) else {
            return false;
        };
        if old.is(new) {
            return true;
        }
        let renewed = is_no_matter(old);
        if renewed {
            self.put(seat, new.to_owned());
        }
        renewed
    }

    /// The same for all seats from this one on.
    #[inline(always)]
    pub fn renew_from(&self, seat: usize) -> bool {
        for seat in seat..self.mold.seats.len() {
            if !self.renew(seat) {
                return false;
            }
        }
        true
    }

    /// Puts a value at a seat, none that the garbage collector must know of. It must be [no matter](is_no_matter) that the
    /// old one goes.
    #[inline(always)]
    pub fn put(&self, seat: usize, value: Bound<'py, PyAny>) {
        if let Some(at) = self.mold.seats[seat].at {
            // SAFETY: there is a value, and the dict's one owner is the caller.
            unsafe { replace(self.dict, at, value) };
        }
    }
}

/// Whether no code runs when the object goes, and nobody can wait for that.
#[inline(always)]
pub fn is_no_matter(object: Borrowed<'_, '_, PyAny>) -> bool {
    // SAFETY: a live object.
    let kind = unsafe { ffi::Py_TYPE(object.as_ptr()) };
    let kinds = [
        &raw mut ffi::PyUnicode_Type,
        &raw mut ffi::PyFloat_Type,
        &raw mut ffi::PyLong_Type,
        &raw mut ffi::PyBool_Type,
    ];
    kinds.contains(&kind) || object.is_none()
}

/// Puts a value at a seat.
///
/// # Safety
///
/// The dict is that of the seat's [`Mold`], or a copy of it, and no key was added or removed since.
#[inline(always)]
unsafe fn put<'py>(
    dict: &Bound<'py, PyDict>,
    seat: &Seat,
    value: Bound<'py, PyAny>,
) -> PyResult<()> {
    let Some(at) = seat.at else {
        return set(dict, seat.key.bind_borrowed(dict.py()), value);
    };
    // SAFETY: as `find` has seen, there is a value of the dict.
    unsafe { replace(dict.as_borrowed(), at, value) };
    Ok(())
}

/// Puts another value in the place of one that is so far into the table of a dict.
///
/// # Safety
///
/// There is such a value, and nobody else has the dict.
#[inline(always)]
unsafe fn replace<'py>(dict: Borrowed<'_, 'py, PyDict>, at: usize, value: Bound<'py, PyAny>) {
    // SAFETY: the dict owns the old value, and now the new one. As nobody else has it, it does not matter that it is not
    // told. The old value goes last, as that may run any code.
    unsafe {
        let place = table(&dict).byte_add(at).cast_mut();
        let old = place.replace(value.into_ptr());
        ffi::Py_DECREF(old);
    }
}

/// Where the entries of a dict are, and much else: its words.
#[inline(always)]
fn table(dict: &Bound<'_, PyDict>) -> *const *mut ffi::PyObject {
    // SAFETY: a live dict; the struct is part of CPython's headers.
    unsafe { (*dict.as_ptr().cast::<PyDictObject>()).ma_keys.cast() }
}

/// The blocks of a table of so many words; the first is its start. Behind the last entry there are but zeros, which do not
/// matter, as it is known how many entries there are.
fn blocks(dict: &Bound<'_, PyDict>, seats: &[usize], words: usize) -> Vec<Block> {
    // SAFETY: a live dict with a table of so many words.
    let table = unsafe { std::slice::from_raw_parts(table(dict).cast::<usize>(), words) };
    let used = table
        .iter()
        .rposition(|word| *word != 0)
        .map_or(0, |last| last + 1);
    let starts = (0..used).step_by(BLOCK).map(|at| at.min(words - BLOCK));
    let block = |at: usize| Block {
        at,
        words: std::array::from_fn(|word| table[at + word]),
        mask: std::array::from_fn(|word| {
            match seats.contains(&((at + word) * size_of::<usize>())) {
                true => 0,
                false => usize::MAX,
            }
        }),
    };
    starts.map(block).collect()
}

impl Block {
    /// Whether the table of a dict has these words. If it is not the first block, those before it must be there.
    #[inline(always)]
    fn is_in(&self, dict: &Bound<'_, PyDict>) -> bool {
        // SAFETY: a live dict. The first block is in every table, and if it is that of the mold's table, the table is as
        // large.
        let words = unsafe { table(dict).add(self.at).cast::<[usize; BLOCK]>().read() };
        let differ = |word: usize| (words[word] ^ self.words[word]) & self.mask[word];
        differ(0) | differ(1) | differ(2) | differ(3) == 0
    }
}

/// What must be known of the interpreter.
struct Interpreter {
    has_gil: bool,
    /// See [`BLOCK`].
    has_known_tables: bool,
}

impl Interpreter {
    fn get(py: Python<'_>) -> &Interpreter {
        static KNOWN: PyOnceLock<Interpreter> = PyOnceLock::new();
        KNOWN.get_or_init(py, || Interpreter {
            has_gil: !Python::version_str().contains("free-threading"),
            has_known_tables: py.version_info() < (3, 15),
        })
    }
}

/// How far the values of these keys are into the table of a dict that nobody else has, and the words of the table; None if
/// that can't be found out.
/// The values are nowhere else, and in the order of the dict.
fn find<'py>(
    dict: &Bound<'py, PyDict>,
    probes: &[(Bound<'py, PyString>, Bound<'py, PyAny>)],
) -> PyResult<Option<(Vec<usize>, usize)>> {
    let py = dict.py();
    if !Interpreter::get(py).has_gil {
        return Ok(None); // another thread may see a dict before it is whole, and change it
    }
    let copy = copy(dict)?;
    let size = |dict: &Bound<'py, PyDict>| {
        dict.call_method0(intern!(py, "__sizeof__"))?
            .extract::<usize>()
    };
    let (mine, other) = (size(dict)?, size(&copy)?);
    // SAFETY: a live dict, as above.
    let is_whole = unsafe { (*dict.as_ptr().cast::<PyDictObject>()).ma_values.is_null() };
    if mine != other || !is_whole || table(dict) == table(&copy) {
        return Ok(None);
    }
    // The size is that of the object and of the table, all of which was written to when it was made.
    let words = mine.saturating_sub(size_of::<PyDictObject>()) / size_of::<usize>();
    let mut places = Vec::new();
    let mut at = 0..words;
    for (_, probe) in probes {
        // SAFETY: within the two tables, which are equally large.
        let is_at = |at: &usize| unsafe {
            *table(dict).add(*at) == probe.as_ptr() && *table(&copy).add(*at) == probe.as_ptr()
        };
        match at.find(is_at) {
            Some(at) => places.push(at * size_of::<usize>()),
            None => return Ok(None),
        }
    }
    // Is it so?
    for ((key, probe), at) in probes.iter().zip(&places) {
        let value = PyFloat::new(py, 1.5).into_any();
        // SAFETY: the probe is there, and as it is nowhere else it is as the dict's value.
        unsafe { replace(copy.as_borrowed(), *at, value.clone()) };
        let (dict, copy) = (dict.as_any(), copy.as_any());
        if !copy.get_item(key)?.is(&value) || !dict.get_item(key)?.is(probe) {
            return Ok(None);
        }
    }
    Ok(Some((places, words)))
}
