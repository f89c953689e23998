//! A source -> pieces of it, which other threads decode before they are asked for.
//!
//! Whoever parses a big file is the bottleneck: it maps and reduces, or makes Python objects. Decoding needs nothing of
//! that, so the next pieces are decoded meanwhile by threads that all sources of the process share. A piece that none of
//! them has begun with is parsed as if they weren't there, and no result tells the difference.
//!
//! What else may be done before it is asked for, by whoever takes the pieces, is handed over as [`Early`].
//!
//! Only files are read ahead, and not their first [`SLOW_START`]: a stream is parsed as it comes, and a short file is
//! done before a thread would have woken up.

mod early;
mod pool;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::Backoff;

pub use early::{Early, Gone};
pub use pool::Pool;

use crate::json::{Decoded, Decoder, Expected, Forms};
use crate::source::{Part, Short, Source, SourceError};

/// What is parsed before anything is decoded ahead.
const SLOW_START: u64 = 1 << 19;
/// About the size of a piece.
const PIECE: usize = 1 << 18;
/// Pieces for each thread, decoded or waiting for it.
const PIECES: usize = 8;
/// A piece that a thread has begun with and not decoded by then is parsed without. There may be no thread: after a fork.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(50);

/// A source in pieces.
pub struct Ahead {
    source: Source,
    /// How many bytes were handed out.
    given: u64,
    /// What is read and not handed out, in the order of the stream.
    jobs: VecDeque<Arc<Job>>,
    /// What was handed out last.
    current: Option<Arc<Job>>,
    /// The bytes of that, if it was neither read nor decoded before: so many.
    room: Vec<u8>,
    size: usize,
    workshop: Arc<Workshop>,
    pool: Option<Arc<Pool>>,
    /// Threads of the pool that have something else to do.
    busy: usize,
    done: bool,
    failed: Option<SourceError>,
}

/// A part of the source.
pub enum Piece<'a> {
    Bytes(&'a [u8]),
    /// As if it began with a line.
    Decoded(&'a Decoded),
}

struct Job {
    raw: Part,
    /// Somebody has begun with it.
    taken: AtomicBool,
    /// None if it could not be read.
    decoded: OnceLock<Option<Decoded>>,
}

/// What decoding takes, to be used again. Nobody ever waits for it: a fork may leave it locked.
#[derive(Default)]
struct Workshop {
    /// Those have seen parts of the source, and of the patterns that they found in them know the forms.
    decoders: Mutex<Vec<(Decoder, Option<Forms>)>>,
    room: Mutex<Vec<Decoded>>,
    series: Expected,
}

impl Ahead {
    /// Records of `series` may be told of as rows.
    pub fn new(source: Source, series: Expected) -> Self {
        Ahead {
            source,
            given: 0,
            jobs: VecDeque::new(),
            current: None,
            room: Vec::new(),
            size: 0,
            workshop: Arc::new(Workshop {
                series,
                ..Workshop::default()
            }),
            pool: None,
            busy: 0,
            done: false,
            failed: None,
        }
    }

    /// The threads that decode ahead, if whoever takes the pieces may be one of them until they [`leave`](Self::leave):
    /// then there is one less.
    pub fn join(&mut self) -> Option<Arc<Pool>> {
        let pool = self.pool.clone()?;
        self.busy = 1;
        Some(pool)
    }

    pub fn leave(&mut self) {
        self.busy = 0;
    }

    /// Reads on; false at the end. What can be read is handed out before the error that ends the reading.
    pub fn advance(&mut self) -> Result<bool, SourceError> {
        if let Some(job) = self.current.take().and_then(Arc::into_inner) {
            put_back(&self.workshop.room, job.decoded.into_inner().flatten());
        }
        if self.given >= SLOW_START && self.pool.is_none() && self.source.is_file() {
            self.pool = Pool::shared();
        }
        let pool = self.pool.clone().filter(|pool| pool.is_here());
        let threads = pool.as_ref().map_or(0, |pool| pool.size() - self.busy);
        // No more than was handed out: a short file takes less room.
        let most = (PIECES * threads).min(self.given as usize / PIECE).max(1);
        while self.jobs.len() < most && !self.done {
            let Some(raw) = self.read() else {
                break; // the caller has its turn
            };
            let job = Arc::new(Job {
                raw,
                taken: AtomicBool::new(false),
                decoded: OnceLock::new(),
            });
            if let Some(pool) = &pool
                && threads > 0
            {
                let (job, workshop) = (job.clone(), self.workshop.clone());
                pool.spawn(move || job.decode(&workshop));
            }
            self.jobs.push_back(job);
        }
        if let Some(job) = self.jobs.pop_front() {
            self.finish(&job);
            self.size = job.raw.size();
            if job.decoded().is_none()
                && matches!(job.raw, Part::Extent(_))
                && let Err(Short { size, error }) = job.raw.read(&mut self.room)
            {
                self.jobs.clear();
                self.done = true;
                let error = self.source.failed(error);
                if size == 0 {
                    return Err(error);
                }
                (self.size, self.failed) = (size, Some(error));
            }
            self.given += self.size as u64;
            self.current = Some(job);
            return Ok(true);
        }
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(!self.done),
        }
    }

    /// What was read last; None: nothing.
    pub fn piece(&self) -> Option<Piece<'_>> {
        let job = self.current.as_ref()?;
        Some(match job.decoded() {
            Some(decoded) => Piece::Decoded(decoded),
            None => Piece::Bytes(match &job.raw {
                Part::Extent(_) => &self.room[..self.size],
                Part::Bytes(bytes) => bytes,
            }),
        })
    }

    /// The next part of the source.
    fn read(&mut self) -> Option<Part> {
        match self.source.part(PIECE) {
            Ok(Some(part)) => return Some(part),
            Ok(None) => {}
            Err(error) => {
                (self.done, self.failed) = (true, Some(error));
                return None;
            }
        }
        let mut bytes = Vec::new();
        let more = self.source.step(&mut |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(())
        });
        self.done = !matches!(more, Ok(true));
        self.failed = more.err();
        (!bytes.is_empty()).then_some(Part::Bytes(bytes))
    }

    /// Waits for the job if somebody has begun with it. Meanwhile, does what they would do next.
    fn finish(&self, job: &Job) {
        if !job.taken.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut others = self.jobs.iter();
        let backoff = Backoff::new();
        let started = Instant::now();
        while job.decoded.get().is_none() && started.elapsed() < PATIENCE {
            match others.next() {
                Some(other) => other.decode(&self.workshop),
                None if backoff.is_completed() => thread::sleep(NAP),
                None => backoff.snooze(),
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for job in &self.jobs {
            job.taken.store(true, Ordering::Relaxed);
        }
    }
}

impl Job {
    fn decoded(&self) -> Option<&Decoded> {
        self.decoded.get()?.as_ref()
    }

    /// Decodes it, if nobody has begun with it.
    fn decode(&self, workshop: &Workshop) {
        if self.taken.swap(true, Ordering::Relaxed) {
            return;
        }
        let (mut decoder, mut forms): (Decoder, Option<Forms>) = take_out(&workshop.decoders);
        let mut decoded: Decoded = take_out(&workshop.room);
        if let (None, Some(series)) = (&forms, workshop.series.get()) {
            forms = Some(Forms::new(series, false));
        }
        let read = self.raw.read(decoded.room());
        if read.is_ok() {
            decoded.decode(self.raw.size(), &mut decoder, forms.as_mut());
        }
        put_back(&workshop.decoders, Some((decoder, forms)));
        // Only who has taken it sets it. What failed is tried again, and told, when its turn comes.
        let _ = self.decoded.set(read.is_ok().then_some(decoded));
    }
}

fn take_out<T: Default>(shelf: &Mutex<Vec<T>>) -> T {
    let found = shelf.try_lock().ok().and_then(|mut shelf| shelf.pop());
    found.unwrap_or_default()
}

fn put_back<T>(shelf: &Mutex<Vec<T>>, thing: Option<T>) {
    if let Ok(mut shelf) = shelf.try_lock() {
        shelf.extend(thing);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::num::NonZero;

    use super::*;
    use crate::record::{Consumer, Error, Intake, Options, Record};
    use crate::report::{Malformed, Report};

    /// What a consumer sees of a stream.
    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        records: Vec<String>,
        malformed: Vec<String>,
        account: String,
    }

    impl Consumer<Error> for Seen {
        fn record(&mut self, record: Record<'_>, report: &mut Report) -> Result<(), Error> {
            let Record {
                json,
                raw,
                line,
                offset,
                share,
                lossy,
                salvaged,
                kind,
            } = record;
            let lone = json.has_lone_surrogate();
            self.records.push(format!(
                "{line} {offset} {share} {lossy} {salvaged} {lone} {kind:?} {:?} {}",
                json.root(),
                String::from_utf8_lossy(raw),
            ));
            report.event(&record);
            Ok(())
        }

        fn malformed(&mut self, line: &Malformed) -> Result<(), Error> {
            self.malformed.push(format!("{line:?}"));
            Ok(())
        }
    }

    const LIMIT: u64 = 3 << 20;

    fn intake() -> Intake {
        Intake::new(Options {
            max_line_bytes: LIMIT,
            ..Options::default()
        })
    }

    fn at_once(stream: &[u8]) -> Seen {
        let (mut intake, mut seen) = (intake(), Seen::default());
        intake.feed(stream, &mut seen).unwrap();
        intake.close(&mut seen).unwrap();
        seen.account = format!("{:?}", intake.report());
        seen
    }

    /// Through pieces; how many of them were decoded ahead.
    fn ahead(source: Source, about: usize) -> (Seen, usize) {
        let (mut intake, mut seen) = (intake(), Seen::default());
        let (mut source, mut decoded) = (Ahead::new(source, Expected::default()), 0);
        while source.advance().unwrap() {
            match source.piece() {
                Some(Piece::Bytes(bytes)) => intake.feed(bytes, &mut seen).unwrap(),
                Some(Piece::Decoded(piece)) => {
                    decoded += 1;
                    let mut line = Some(0);
                    while let Some(from) = line {
                        line = intake.feed_decoded(piece, from, about, &mut seen).unwrap();
                    }
                }
                None => (),
            }
        }
        intake.close(&mut seen).unwrap();
        seen.account = format!("{:?}", intake.report());
        (seen, decoded)
    }

    /// Some megabytes of what may stand in a stream.
    fn stream(start: &str) -> Vec<u8> {
        let mut stream = start.as_bytes().to_vec();
        for number in 0..12_000 {
            let line = match number % 4000 {
                17 => "\r\n".to_owned(),
                18 => "no JSON {\"type\":\"a\",\"n\":1} {\"type\":\"b\"\n".to_owned(),
                19 => "[{\"type\":\"a\"}, 3, {\"type\":\"b\"}]\n".to_owned(),
                20 => "{\"type\":\"half\",\"of\":\"\\ud83d\"}\r\n".to_owned(),
                21 => format!(
                    "{{\"type\":\"long\",\"text\":\"{}\"}}\n",
                    "é".repeat(100_000)
                ),
                22 => format!(
                    "{{\"type\":\"longer\",\"text\":\"{}\"}}\n",
                    "x".repeat(2 << 20)
                ),
                23 => format!(
                    "{{\"type\":\"too long\",\"text\":\"{}\"}}\n",
                    "x".repeat(4 << 20)
                ),
                24 => format!(
                    "{{\"type\":\"many\",\"list\":[{}0]}}\n",
                    "0,".repeat(30_000)
                ),
                25 => "{\"type\":\"cut\",\"text\":\"\n".to_owned(),
                26 => "{\"type\":\"not UTF-8\",\"text\":\"\u{0}\"}\n".replace('\u{0}', "?"),
                at if at % 7 == 0 => format!("{{\"type\":\"b\",\"a\":{{\"n\":{at}.5e3}}}}\r\n"),
                at => format!("{{\"type\":\"a\",\"id\":{at},\"text\":\"word {number} \\n\"}}\n"),
            };
            let start = stream.len();
            stream.extend_from_slice(line.as_bytes());
            if number % 4000 == 26 {
                stream[start + line.len() - 4] = 0xff;
            }
        }
        stream.extend_from_slice(b"{\"type\":\"last, no LF\"}");
        stream
    }

    #[test]
    fn what_is_decoded_ahead_is_what_would_be_parsed() {
        let folder = tempfile::tempdir().unwrap();
        for (number, start) in ["", "\u{feff}", "{\n\"type\": 1,\n"].iter().enumerate() {
            let stream = stream(start);
            let expected = at_once(&stream);
            let path = folder.path().join(number.to_string());
            fs::write(&path, &stream).unwrap();
            for about in [1, 4096, usize::MAX] {
                let (seen, _) = ahead(Source::open(&path).unwrap(), about);
                assert!(seen == expected, "{start:?}, {about} bytes at a time");
            }
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            packer.write_all(&stream).unwrap();
            fs::write(&path, packer.finish().unwrap()).unwrap();
            let (seen, _) = ahead(Source::open(&path).unwrap(), 4096);
            assert!(seen == expected, "{start:?}, compressed");
        }
    }

    #[test]
    fn a_big_file_is_decoded_by_other_threads() {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("big");
        fs::write(
            &path,
            b"{\"type\":\"a\",\"n\":[1,2,3,4,5,6,7]}\n".repeat(500_000),
        )
        .unwrap();
        let (_, decoded) = ahead(Source::open(&path).unwrap(), usize::MAX);
        assert_eq!(decoded > 0, cores > 1);
    }

    #[test]
    fn a_file_without_line_ends_is_handed_out_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("long");
        let file = fs::File::create(&path).unwrap();
        file.set_len(150 << 20).unwrap(); // of zeros, which take no room on most disks
        let mut source = Ahead::new(Source::open(&path).unwrap(), Expected::default());
        let mut size = 0;
        while source.advance().unwrap() {
            assert!(source.room.capacity() <= PIECE);
            size += match source.piece() {
                Some(Piece::Bytes(bytes)) => bytes.len(),
                Some(Piece::Decoded(piece)) => piece.bytes().len(),
                None => 0,
            };
        }
        assert_eq!(size, 150 << 20);
    }

    #[test]
    fn a_stream_is_handed_out_as_it_comes() {
        let (read, mut write) = std::io::pipe().unwrap();
        let mut source = Ahead::new(Source::reader(read, "pipe"), Expected::default());
        for part in [&b"{\"type\":"[..], b"\"a\"}\n{", b"}\n"] {
            write.write_all(part).unwrap();
            // The first bytes are looked at before they are handed out.
            assert!(source.advance().unwrap());
            assert!(matches!(source.piece(), Some(Piece::Bytes(bytes)) if bytes == part));
        }
        drop(write);
        assert!(!source.advance().unwrap());
        assert!(source.piece().is_none());
    }

    #[test]
    fn what_can_be_read_comes_before_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cut.gz");
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), Default::default());
        packer.write_all(&stream("")).unwrap();
        let packed = packer.finish().unwrap();
        fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let mut source = Ahead::new(Source::open(&path).unwrap(), Expected::default());
        let mut size = 0;
        let error = loop {
            match source.advance() {
                Ok(more) => assert!(more, "no error"),
                Err(error) => break error,
            }
            size += match source.piece() {
                Some(Piece::Bytes(bytes)) => bytes.len(),
                Some(Piece::Decoded(piece)) => piece.bytes().len(),
                None => 0,
            };
        };
        assert!(matches!(error, SourceError::Cut { .. }));
        assert!(size > 1 << 20);
        assert!(!source.advance().unwrap());
    }

    #[test]
    fn a_thread_that_is_gone_is_not_waited_for_long() {
        let job = Job {
            raw: Part::Bytes(b"{}\n".to_vec()),
            taken: AtomicBool::new(true), // by a thread that a fork has left behind
            decoded: OnceLock::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "{}\n").unwrap();
        let mut source = Ahead::new(Source::open(&path).unwrap(), Expected::default());
        source.jobs.push_back(Arc::new(job));
        assert!(source.advance().unwrap());
        assert!(matches!(source.piece(), Some(Piece::Bytes(b"{}\n"))));
    }
}
