//! Events become Python objects.

use std::collections::{HashSet, VecDeque};

use headrace_core::event::{Event, Sink};
use headrace_core::parser::{Output, Parser};
use headrace_core::record;
use headrace_core::report::Malformed;
use pyo3::prelude::*;

use crate::early::give;
use crate::errors::Failure;
use crate::feed::Input;
use crate::given::Given;
use crate::objects::Builder;
use crate::record::Record;

/// How events become Python objects.
#[derive(Default)]
pub struct Making {
    pub on_malformed: Option<Py<PyAny>>,
    /// Native types of the records that are given out before their events.
    pub types: HashSet<String>,
    pub spans: bool,
}

impl Making {
    /// Has something tell its output of events, and pushes them onto the queue.
    pub fn collect<T>(
        &self,
        py: Python<'_>,
        given: &mut Given,
        out: &mut VecDeque<Py<PyAny>>,
        tell: impl FnOnce(&mut dyn Output) -> Result<T, record::Error>,
    ) -> Result<T, Failure> {
        let mut collector = Collector {
            py,
            builder: Builder::take(),
            making: self,
            given,
            out,
            failed: None,
        };
        let result = tell(&mut collector);
        collector.builder.put_back();
        match collector.failed {
            Some(error) => Err(error.into()),
            None => Ok(result?),
        }
    }

    /// The same of what the parser makes of its input.
    pub fn parse(
        &self,
        py: Python<'_>,
        parser: &mut Parser,
        input: Input<'_>,
        given: &mut Given,
        out: &mut VecDeque<Py<PyAny>>,
    ) -> Result<Option<usize>, Failure> {
        let is_end = matches!(input, Input::End);
        let parsed = self.collect(py, given, out, |output| give(parser, input, output));
        if is_end {
            given.close();
        }
        parsed
    }
}

/// What a call to the parser gave, as Python objects.
struct Collector<'c, 'py> {
    py: Python<'py>,
    builder: Box<Builder>,
    making: &'c Making,
    given: &'c mut Given,
    out: &'c mut VecDeque<Py<PyAny>>,
    failed: Option<PyErr>,
}

impl Sink for Collector<'_, '_> {
    fn take(&mut self, event: &Event<'_>) {
        if self.failed.is_none() {
            let spans = self.making.spans;
            match self.builder.event(self.py, event, spans, self.given) {
                Ok(event) => self.out.push_back(event.into_any().unbind()),
                Err(error) => self.failed = Some(error),
            }
        }
    }
}

impl Output for Collector<'_, '_> {
    fn record(&mut self, record: &record::Record<'_>) {
        let wanted = record
            .native_type()
            .is_some_and(|kind| self.making.types.contains(&*kind.lossy()));
        if wanted && self.failed.is_none() {
            match Py::new(self.py, Record::new(record, None)) {
                Ok(record) => self.out.push_back(record.into_any()),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    fn malformed(&mut self, line: &Malformed) {
        if let (Some(call), None) = (&self.making.on_malformed, &self.failed) {
            self.failed = tell(self.py, call, line).err();
        }
    }
}

/// Calls `on_malformed`.
pub fn tell(py: Python<'_>, call: &Py<PyAny>, line: &Malformed) -> PyResult<()> {
    let line =
        Builder::with(|builder| Ok::<_, PyErr>(builder.data(py, &line.to_data())?.unbind()))?;
    call.call1(py, (line,)).map(drop)
}
