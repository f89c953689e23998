//! The raw layer: bytes in, records out, no dialect asked.

use std::collections::HashSet;

use crate::detect::{Detection, Detector};
use crate::dialect;
use crate::json::{Decoded, Value};
use crate::record::{Consumer, Error, Intake, Options, Record};
use crate::report::{Malformed, Report};

/// The rule by which records of other types are left out.
const NOT_ASKED_FOR: &str = "type not asked for";

/// Takes what a [`Reader`] finds.
pub trait Records {
    fn record(&mut self, record: &Record<'_>);

    /// A malformed line, before what is salvaged from it.
    fn malformed(&mut self, _line: &Malformed) {}
}

/// One stream from bytes to records; those of other native types than asked for are only counted.
pub struct Reader {
    intake: Intake,
    filter: Filter,
}

#[derive(Default)]
struct Filter {
    only: Option<HashSet<String>>,
    detector: Detector,
    detection: Option<Detection>,
}

impl Reader {
    pub fn new(only: Option<HashSet<String>>, options: Options) -> Self {
        Reader {
            intake: Intake::new(options),
            filter: Filter {
                only,
                ..Filter::default()
            },
        }
    }

    /// See [`Intake::without_templates`].
    pub fn without_templates(mut self) -> Self {
        self.intake = self.intake.without_templates();
        self
    }

    pub fn report(&self) -> &Report {
        self.intake.report()
    }

    /// What the records so far say of the dialect.
    pub fn detection(&self) -> Option<Detection> {
        let sure = self.filter.detection.clone();
        sure.or_else(|| self.filter.detector.best())
    }

    pub fn feed(&mut self, chunk: &[u8], records: &mut dyn Records) -> Result<(), Error> {
        let filter = &mut self.filter;
        self.intake.feed(chunk, &mut Line { filter, records })
    }

    /// As [`feed`](Reader::feed), of what was decoded before: see [`Intake::feed_decoded`].
    pub fn feed_decoded(
        &mut self,
        piece: &Decoded,
        from: usize,
        about: usize,
        records: &mut dyn Records,
    ) -> Result<Option<usize>, Error> {
        let filter = &mut self.filter;
        let mut line = Line { filter, records };
        self.intake.feed_decoded(piece, from, about, &mut line)
    }

    pub fn close(&mut self, records: &mut dyn Records) -> Result<(), Error> {
        let filter = &mut self.filter;
        self.intake.close(&mut Line { filter, records })
    }
}

struct Line<'r> {
    filter: &'r mut Filter,
    records: &'r mut dyn Records,
}

impl Consumer<Error> for Line<'_> {
    #[inline]
    fn record(&mut self, record: Record<'_>, report: &mut Report) -> Result<(), Error> {
        let filter = &mut *self.filter;
        if filter.detection.is_none() && !filter.detector.is_full() {
            let size = record.raw.len() as u64;
            filter.detection = filter.detector.look(record.value(), record.line, size);
        }
        let wanted = filter.only.as_ref().is_none_or(|only| {
            let kind = record.native_type();
            kind.is_some_and(|kind| only.contains(&*kind.lossy()))
        });
        if wanted {
            report.event(&record);
            self.records.record(&record);
        } else {
            report.ignore(&record, NOT_ASKED_FOR);
        }
        Ok(())
    }

    fn malformed(&mut self, line: &Malformed) -> Result<(), Error> {
        self.records.malformed(line);
        Ok(())
    }

    fn is_record(&self, value: Value<'_>) -> bool {
        let known = self.filter.detection.as_ref();
        dialect::is_record(value, known.map(|found| found.dialect))
    }

    fn is_document(&self, value: Value<'_>) -> bool {
        let known = self.filter.detection.as_ref();
        dialect::is_document(value, known.map(|found| found.dialect))
    }
}
