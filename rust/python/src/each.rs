//! `Each`: `async for` over items that are there already, without a coroutine for each of them.
//!
//! A coroutine costs more to make, start and end than many an event costs to parse. What is awaited here instead is an
//! [`Item`], which has its answer at once; how a type says so is a slot (`am_send`) that PyO3 does not offer.

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::exceptions::{PyRuntimeError, PyStopIteration};
use pyo3::ffi;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

/// Gives the items of a deque; when there are none, leaves the waiting to a coroutine.
#[pyclass(frozen, module = "headrace._native")]
pub struct Each {
    ready: Py<PyAny>,
    pop: Py<PyAny>,
    following: Py<PyAny>,
    kind: Py<PyType>,
}

#[pymethods]
impl Each {
    #[new]
    fn new(ready: &Bound<'_, PyAny>, following: Py<PyAny>) -> PyResult<Self> {
        Ok(Each {
            pop: ready.getattr("popleft")?.unbind(),
            ready: ready.clone().unbind(),
            following,
            kind: kind(ready.py())?,
        })
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (py, each) = (slf.py(), slf.get());
        match each.is_empty(py)? {
            true => each.following.bind(py).call0(),
            false => Item::of(each.kind.bind(py), slf),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.ready)?;
        visit.call(&self.pop)?;
        visit.call(&self.following)
    }
}

impl Each {
    #[inline]
    fn is_empty(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.ready.bind(py).len()? == 0)
    }
}

/// An awaitable, and its own iterator, that ends at once with an item. Nothing is taken before it is awaited: what is
/// cancelled before that loses nothing.
#[repr(C)]
struct Item {
    base: ffi::PyObject,
    /// Owned: an [`Each`].
    each: *mut ffi::PyObject,
    /// Owned, or null: what waits for an item instead, as somebody else has taken what was there.
    waits: *mut ffi::PyObject,
    is_given: bool,
}

/// The Python type of an [`Item`].
fn kind(py: Python<'_>) -> PyResult<Py<PyType>> {
    static KIND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = KIND.get_or_try_init(py, || {
        let slot = |slot, pfunc| ffi::PyType_Slot { slot, pfunc };
        let mut slots = [
            slot(ffi::Py_am_await, start as *mut c_void),
            slot(ffi::Py_am_send, send as *mut c_void),
            slot(ffi::Py_tp_iter, iter as *mut c_void),
            slot(ffi::Py_tp_iternext, next as *mut c_void),
            slot(ffi::Py_tp_dealloc, dealloc as *mut c_void),
            slot(0, ptr::null_mut()),
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"headrace._native.Item".as_ptr(),
            basicsize: size_of::<Item>() as c_int,
            itemsize: 0,
            flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION) as _,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: each slot has one of the functions below, with the signature that CPython expects there. The name lives
        // as long as the program.
        let kind = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec)) };
        Ok::<_, PyErr>(kind?.cast_into::<PyType>()?.unbind())
    })?;
    Ok(made.clone_ref(py))
}

impl Item {
    /// `kind` is the type of items.
    #[inline]
    fn of<'py>(kind: &Bound<'py, PyType>, each: &Bound<'py, Each>) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: an object of this type has the size of an `Item` and is all zeros: two fields are right so, and the
        // third is set before anybody else has it.
        unsafe {
            let object = ffi::PyType_GenericAlloc(kind.as_type_ptr(), 0);
            let object = Bound::from_owned_ptr_or_err(kind.py(), object)?;
            (*object.as_ptr().cast::<Item>()).each = each.clone().into_ptr();
            Ok(object)
        }
    }

    /// # Safety
    /// `this` is a live `Item`, and the thread has the GIL for as long as the result is used.
    unsafe fn each<'a, 'py>(this: *mut ffi::PyObject) -> Borrowed<'a, 'py, Each> {
        // SAFETY: said above.
        unsafe {
            let py = Python::assume_attached();
            Borrowed::from_ptr(py, (*this.cast::<Item>()).each).cast_unchecked()
        }
    }

    /// # Safety
    /// As for [`each`](Self::each).
    unsafe fn take<'py>(this: *mut ffi::PyObject) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: said above.
        let (each, is_given) = unsafe { (Item::each(this), &mut (*this.cast::<Item>()).is_given) };
        if std::mem::replace(is_given, true) {
            return Err(PyRuntimeError::new_err("this was awaited before"));
        }
        each.get().pop.bind(each.py()).call0()
    }
}

/// Gives the iterator: the item itself, if there is one.
unsafe extern "C" fn start(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this with a live object of our type.
    unsafe {
        let item: *mut Item = this.cast();
        if (*item).waits.is_null() && !(*item).is_given {
            let each = Item::each(this);
            let (py, each) = (each.py(), each.get());
            let waits = match each.is_empty(py) {
                Ok(false) => return ffi::Py_NewRef(this),
                Ok(true) => each.following.bind(py).call0(),
                Err(error) => Err(error),
            };
            match waits.and_then(|waits| waits.call_method0("__await__")) {
                Ok(waits) => (*item).waits = waits.into_ptr(),
                Err(error) => {
                    error.restore(py);
                    return ptr::null_mut();
                }
            }
        }
        match (*item).waits.is_null() {
            true => ffi::Py_NewRef(this),
            false => ffi::Py_NewRef((*item).waits),
        }
    }
}

unsafe extern "C" fn iter(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this with a live object.
    unsafe { ffi::Py_NewRef(this) }
}

unsafe extern "C" fn send(
    this: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: CPython calls this with a live object of our type and a place for the result.
    unsafe {
        match Item::take(this) {
            Ok(item) => {
                *result = item.into_ptr();
                ffi::PySendResult::PYGEN_RETURN
            }
            Err(error) => {
                *result = ptr::null_mut();
                error.restore(Python::assume_attached());
                ffi::PySendResult::PYGEN_ERROR
            }
        }
    }
}

/// What CPython calls where it does not call `send`.
unsafe extern "C" fn next(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: CPython calls this with a live object of our type.
    unsafe {
        let error = match Item::take(this) {
            Ok(item) => PyStopIteration::new_err((item.unbind(),)),
            Err(error) => error,
        };
        error.restore(Python::assume_attached());
    }
    ptr::null_mut()
}

unsafe extern "C" fn dealloc(this: *mut ffi::PyObject) {
    // SAFETY: the object is nobody's any more, and its fields are ours, or null. Its type is told after it is gone.
    unsafe {
        let item: *mut Item = this.cast();
        ffi::Py_XDECREF((*item).each);
        ffi::Py_XDECREF((*item).waits);
        let kind = ffi::Py_TYPE(this);
        ffi::PyObject_Free(this.cast());
        ffi::Py_DECREF(kind.cast());
    }
}
