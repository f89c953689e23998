//! Objects made with CPython's own calls, where PyO3's are slower; the `unsafe` of object building is all here.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// A `str`. What CPython's decoder would find out is known here: that the text is valid, and soon how wide it is.
pub fn string<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyString> {
    let bytes = text.as_bytes();
    if bytes.is_ascii() {
        return fill(py, bytes.len(), 0x7f, |out: &mut [u8]| {
            out.copy_from_slice(bytes)
        });
    }
    let count = text.chars().count();
    // The first byte of the highest character tells which of CPython's three widths the text needs.
    match bytes.iter().fold(0, |highest: u8, byte| highest.max(*byte)) {
        0..0xc4 => fill(py, count, 0xff, |out: &mut [u8]| {
            widen(text, out, |c| c as u8)
        }),
        0xc4..0xf0 => fill(py, count, 0xffff, |out: &mut [u16]| {
            widen(text, out, |c| c as u16);
        }),
        _ => fill(py, count, 0x10_ffff, |out: &mut [u32]| {
            widen(text, out, |c| c as u32);
        }),
    }
}

/// Writes the characters of the text, of which there are as many as places.
#[inline(always)]
fn widen<T: From<u8>>(text: &str, mut out: &mut [T], narrow: impl Fn(char) -> T) {
    let mut rest = text;
    // Most text is ASCII, in long runs; other characters come in runs too.
    while !rest.is_empty() {
        let (run, more) = rest.split_at(ascii_prefix(rest.as_bytes()));
        let (places, free) = out.split_at_mut(run.len());
        for (place, byte) in places.iter_mut().zip(run.as_bytes()) {
            *place = T::from(*byte);
        }
        let mut characters = more.chars();
        let mut written = 0;
        (rest, out) = (more, free);
        while let Some(character) = characters.next()
            && !character.is_ascii()
        {
            out[written] = narrow(character);
            written += 1;
            rest = characters.as_str();
        }
        out = &mut out[written..];
    }
}

/// How many bytes there are before the first that is not ASCII.
#[inline]
fn ascii_prefix(bytes: &[u8]) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let others = u64::from_le_bytes(*word) & 0x8080_8080_8080_8080;
        if others != 0 {
            return 8 * number + others.trailing_zeros() as usize / 8;
        }
    }
    let others = rest.iter().position(|byte| !byte.is_ascii());
    bytes.len() - rest.len() + others.unwrap_or(rest.len())
}

/// A new string of `count` characters up to `highest`, which `write` must really need and write in full.
fn fill<'py, T>(
    py: Python<'py>,
    count: usize,
    highest: ffi::Py_UCS4,
    write: impl FnOnce(&mut [T]),
) -> Bound<'py, PyString> {
    // SAFETY: a string that CPython has just made belongs to nobody else and may still be written to. For each of the
    // values of `highest` above, T is as wide as its characters, and there is room for `count` of them. (The one empty
    // string that all share has no character to write to.)
    unsafe {
        let object = ffi::PyUnicode_New(count as ffi::Py_ssize_t, highest);
        let string = Bound::from_owned_ptr(py, object);
        let data: *mut T = ffi::PyUnicode_DATA(object).cast();
        write(std::slice::from_raw_parts_mut(data, count));
        string.cast_into_unchecked()
    }
}

/// A list of `len` items, which the iterator gives.
pub fn list<'py>(
    py: Python<'py>,
    len: usize,
    items: impl Iterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyList>> {
    // SAFETY: a new list has `len` empty places; each is filled once, and a list with empty places may be dropped.
    unsafe {
        let list = Bound::from_owned_ptr(py, ffi::PyList_New(len as ffi::Py_ssize_t));
        let mut filled = 0;
        for item in items.take(len) {
            ffi::PyList_SET_ITEM(list.as_ptr(), filled, item?.into_ptr());
            filled += 1;
        }
        assert_eq!(
            filled, len as ffi::Py_ssize_t,
            "a list with empty places must not get out"
        );
        Ok(list.cast_into_unchecked())
    }
}

/// `dict[key] = value`
#[inline]
pub fn set<'py>(
    dict: &Bound<'py, PyDict>,
    key: Borrowed<'_, 'py, PyString>,
    value: Bound<'py, PyAny>,
) -> PyResult<()> {
    // SAFETY: three live objects, of which the first is a dict.
    match unsafe { ffi::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        _ => Err(PyErr::fetch(dict.py())),
    }
}

/// `dict.copy()`, of a dict and no subclass.
#[inline]
pub fn copy<'py>(dict: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyDict>> {
    // SAFETY: a live dict; what comes back is a new dict that is ours, or null with an exception set.
    unsafe {
        let copy = Bound::from_owned_ptr_or_err(dict.py(), ffi::PyDict_Copy(dict.as_ptr()))?;
        Ok(copy.cast_into_unchecked())
    }
}
