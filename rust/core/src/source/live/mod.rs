//! Live sources: one thread drains any number of pipes, so that no producer ever waits for its consumer.
//!
//! What was read waits in a queue per stream: in memory up to a limit that all streams share, beyond it in an unlinked
//! file. Order within a stream is the order of the bytes; its end, or the error that ended it, comes after all of them.

mod claim;
mod error;
mod loan;
mod pool;
#[cfg(target_os = "linux")]
mod relay;
mod spill;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use polling::{Event, Events, PollMode, Poller};

pub use claim::Claim;
pub use error::LiveError;
use loan::Loans;
pub use pool::{BLOCK, Pool};
use rustix::buffer::spare_capacity;
use spill::{Hole, REGION, Spill};

/// What waits in memory at most unless the caller says otherwise.
pub const DEFAULT_MEMORY_LIMIT: u64 = 64 << 20;

/// What a pipe is enlarged to, from 64 KiB. All pipes of a user share 64 MiB, and what is larger than the cache is slow
/// to fill, so not more.
const PIPE: usize = 1 << 18;
/// Small reads are put together up to this size.
const JOINED: usize = 1 << 16;
/// A piece of the spill file grows up to this size.
const SPILLED: u64 = 1 << 20;
const STACK: usize = 1 << 18;

/// How a [`Live`] keeps what waits.
pub struct Limits {
    /// Bytes in memory, of all streams together.
    pub memory: u64,
    /// Bytes in the spill file, of all streams together.
    pub spill: u64,
    /// Where the spill file is made; None for the system's folder of temporary files.
    pub spill_dir: Option<PathBuf>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory: DEFAULT_MEMORY_LIMIT,
            spill: u64::MAX,
            spill_dir: None,
        }
    }
}

/// What [`Live::take`] or [`Live::claim`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T = Vec<u8>> {
    Bytes(T),
    /// Nothing yet.
    Nothing,
    /// The stream is over and everything was taken.
    End,
}

/// Drains streams until it is dropped.
pub struct Live {
    /// None once closed.
    inner: Mutex<Option<Inner>>,
    limits: Mutex<Option<Limits>>,
    /// The process that made it.
    process: u32,
    pool: Arc<Pool>,
}

struct Inner {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    poller: Poller,
    pool: Arc<Pool>,
    state: Mutex<State>,
    /// Told of every change that a consumer may wait for.
    changed: Condvar,
    /// The process that has the thread.
    process: u32,
}

struct State {
    streams: BTreeMap<usize, Stream>,
    next: usize,
    memory_limit: u64,
    /// Capacity of all pieces in memory.
    memory: u64,
    spill: Spill,
    /// Streams with news that [`Live::ready`] has not told of yet.
    news: Vec<usize>,
    wake: Option<Wake>,
    closing: bool,
}

/// A pipe that is readable while there are news: what an event loop waits for.
struct Wake {
    reader: PipeReader,
    writer: PipeWriter,
    signalled: bool,
}

struct Stream {
    name: String,
    /// None when it is over.
    file: Option<Arc<File>>,
    queue: VecDeque<Piece>,
    /// How it ended.
    end: Option<Result<(), LiveError>>,
    /// Whether it is queued at all; its tail is kept in any case.
    keep: bool,
    tail: VecDeque<u8>,
    tail_limit: usize,
    total: u64,
    last: Instant,
    in_news: bool,
    /// The consumer waits for the descriptor, see [`loan`].
    is_lent: bool,
    /// Somebody reads at this moment, and has not delivered yet: nobody else may.
    is_read: bool,
    not_lent_before: Option<Instant>,
}

enum Piece {
    Memory(Vec<u8>),
    Spilled { at: u64, size: u64 },
}

impl Live {
    /// Nothing is started before the first stream is added.
    pub fn new(limits: Limits) -> Self {
        Live {
            inner: Mutex::new(None),
            limits: Mutex::new(Some(limits)),
            process: std::process::id(),
            pool: Arc::default(),
        }
    }

    /// Where what was taken can be put back: then its memory is used again.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Drains a descriptor from now on, a copy of it: the caller may close theirs, and must not read from it.
    ///
    /// `name` is for messages. The last `tail` bytes are kept for [`Live::tail`]; with `keep` false, only they.
    pub fn add(
        &self,
        descriptor: BorrowedFd<'_>,
        name: &str,
        tail: usize,
        keep: bool,
    ) -> Result<usize, LiveError> {
        let shared = self.start()?;
        let open = |error| LiveError::Open {
            name: name.to_owned(),
            error,
        };
        let descriptor: OwnedFd = descriptor.try_clone_to_owned().map_err(open)?;
        enlarge(&descriptor);
        let file = Arc::new(File::from(descriptor));
        let mut state = shared.lock();
        let id = state.next;
        // SAFETY: a source must be deleted from the poller before it is closed. `file` is closed when its stream lets go
        // of it, in `Stream::let_go`, which deletes it first, or when the poller itself is dropped before the state.
        unsafe {
            shared
                .poller
                .add_with_mode(&*file, Event::readable(id), PollMode::Level)
        }
        .map_err(open)?;
        state.next += 1;
        state.streams.insert(
            id,
            Stream {
                name: name.to_owned(),
                file: Some(file),
                queue: VecDeque::new(),
                end: None,
                keep,
                tail: VecDeque::new(),
                tail_limit: tail,
                total: 0,
                last: Instant::now(),
                in_news: false,
                is_lent: false,
                is_read: false,
                not_lent_before: None,
            },
        );
        Ok(id)
    }

    /// Whether the stream is queued from now on.
    pub fn keep(&self, id: usize, keep: bool) -> Result<(), LiveError> {
        self.with(id, |stream| stream.keep = keep)
    }

    /// The last bytes of a stream, as many as were asked for when it was added.
    pub fn tail(&self, id: usize) -> Result<Vec<u8>, LiveError> {
        self.with(id, |stream| stream.tail.iter().copied().collect())
    }

    /// How many bytes were read, and how long ago the last.
    pub fn activity(&self, id: usize) -> Result<(u64, Duration), LiveError> {
        self.with(id, |stream| (stream.total, stream.last.elapsed()))
    }

    /// Bytes that wait now, in memory and in the spill file.
    pub fn waiting(&self) -> Result<(u64, u64), LiveError> {
        let Some(shared) = self.shared()? else {
            return Ok((0, 0));
        };
        let state = shared.lock();
        Ok((state.memory, state.spill.live()))
    }

    /// The next bytes of a stream, about `most` of them; never waits for the producer.
    pub fn take(&self, id: usize, most: usize) -> Result<Taken, LiveError> {
        Ok(match self.claim(id, most)? {
            Taken::Bytes(claim) => Taken::Bytes(claim.into_bytes()?),
            Taken::Nothing => Taken::Nothing,
            Taken::End => Taken::End,
        })
    }

    /// The same, but the bytes need not be in memory yet.
    pub fn claim(&self, id: usize, most: usize) -> Result<Taken<Claim>, LiveError> {
        let shared = self.shared()?.ok_or(LiveError::Gone)?;
        let mut state = shared.lock();
        let State {
            streams, memory, ..
        } = &mut *state;
        let stream = streams.get_mut(&id).ok_or(LiveError::Gone)?;
        let piece = match stream.queue.front_mut() {
            None => {
                return match &stream.end {
                    None if stream.is_lent && !stream.is_read => {
                        let Some(file) = stream.file.clone() else {
                            return Ok(Taken::Nothing);
                        };
                        stream.is_read = true;
                        drop(state);
                        self.claim_lent(&shared, id, &file)
                    }
                    None => Ok(Taken::Nothing),
                    Some(Ok(())) => Ok(Taken::End),
                    Some(Err(error)) => Err(error.again()),
                };
            }
            Some(Piece::Memory(_)) => Piece::Memory(stream.take_memory(memory, most, &self.pool)),
            Some(Piece::Spilled { at, size }) => {
                let part = (*size).min(most.max(1) as u64);
                let piece = Piece::Spilled {
                    at: *at,
                    size: part,
                };
                *at += part;
                *size -= part;
                if *size == 0 {
                    stream.queue.pop_front();
                }
                piece
            }
        };
        drop(state);
        Ok(Taken::Bytes(Claim::new(shared, id, piece)))
    }

    /// Waits until one of the streams has bytes or an end; false when there is neither after `timeout`.
    pub fn wait(&self, ids: &[usize], timeout: Duration) -> Result<bool, LiveError> {
        let shared = self.shared()?.ok_or(LiveError::Gone)?;
        let idle = |state: &mut State| {
            !state.closing
                && ids.iter().all(|id| {
                    let stream = state.streams.get(id);
                    stream.is_none_or(|stream| stream.queue.is_empty() && stream.end.is_none())
                })
        };
        let (_state, result) = shared
            .changed
            .wait_timeout_while(shared.lock(), timeout, idle)
            .unwrap_or_else(PoisonError::into_inner);
        Ok(!result.timed_out())
    }

    /// A descriptor that is readable while [`Live::ready`] has something to tell. It lives as long as the intake.
    pub fn wake_descriptor(&self) -> Result<i32, LiveError> {
        use std::os::fd::AsRawFd;
        let shared = self.start()?;
        let mut state = shared.lock();
        if state.wake.is_none() {
            let (reader, writer) = io::pipe().map_err(LiveError::Start)?;
            state.wake = Some(Wake {
                reader,
                writer,
                signalled: false,
            });
            // what came before somebody could be told
            let all: Vec<usize> = state.streams.keys().copied().collect();
            for id in all {
                if state.streams[&id].in_news {
                    state.signal();
                }
            }
        }
        Ok(state
            .wake
            .as_ref()
            .map_or(-1, |wake| wake.reader.as_raw_fd()))
    }

    /// The streams with bytes or an end that came since the last call.
    pub fn ready(&self) -> Result<Vec<usize>, LiveError> {
        let Some(shared) = self.shared()? else {
            return Ok(Vec::new());
        };
        let mut state = shared.lock();
        if let Some(wake) = &mut state.wake
            && std::mem::take(&mut wake.signalled)
        {
            let _ = wake.reader.read(&mut [0; 8]);
        }
        let news = std::mem::take(&mut state.news);
        for id in &news {
            if let Some(stream) = state.streams.get_mut(id) {
                stream.in_news = false;
            }
        }
        Ok(news)
    }

    /// Lets go of a stream and of what waits of it.
    pub fn remove(&self, id: usize) -> Result<(), LiveError> {
        let Some(shared) = self.shared()? else {
            return Ok(());
        };
        let mut state = shared.lock();
        let holes = state.forget_queue(id);
        if let Some(mut stream) = state.streams.remove(&id) {
            stream.let_go(&shared.poller);
        }
        drop(state);
        shared.changed.notify_all();
        shared.punch(&holes);
        Ok(())
    }

    /// Lets go of everything and ends the thread.
    pub fn close(&self) {
        if self.is_foreign() {
            return;
        }
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        *limits = None; // it can't be started again
        let inner = self
            .inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(Inner { shared, thread }) = inner else {
            return;
        };
        let mut state = shared.lock();
        state.closing = true;
        for stream in state.streams.values_mut() {
            stream.let_go(&shared.poller);
        }
        drop(state);
        shared.changed.notify_all();
        let _ = shared.poller.notify();
        // The thread ends at once, unless somebody else reads from one of its pipes too and it waits in vain in a read:
        // then it is left alone.
        for _ in 0..200 {
            if thread.is_finished() {
                let _ = thread.join();
                return;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
    }

    fn is_foreign(&self) -> bool {
        is_foreign(self.process)
    }

    fn shared(&self) -> Result<Option<Arc<Shared>>, LiveError> {
        if self.is_foreign() {
            return Err(LiveError::Forked); // the locks may be held by threads that are not there
        }
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(inner.as_ref().map(|inner| inner.shared.clone()))
    }

    fn start(&self) -> Result<Arc<Shared>, LiveError> {
        if self.is_foreign() {
            return Err(LiveError::Forked);
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inner) = &*inner {
            return Ok(inner.shared.clone());
        }
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let limits = limits.take().ok_or(LiveError::Gone)?;
        let shared = Arc::new(Shared {
            poller: Poller::new().map_err(LiveError::Start)?,
            pool: self.pool.clone(),
            state: Mutex::new(State {
                streams: BTreeMap::new(),
                next: 1,
                memory_limit: limits.memory,
                memory: 0,
                spill: Spill::new(limits.spill_dir, limits.spill),
                news: Vec::new(),
                wake: None,
                closing: false,
            }),
            changed: Condvar::new(),
            process: self.process,
        });
        let copy = shared.clone();
        let thread = std::thread::Builder::new()
            .name("headrace-intake".into())
            .stack_size(STACK)
            .spawn(move || drain(&copy))
            .map_err(LiveError::Start)?;
        *inner = Some(Inner {
            shared: shared.clone(),
            thread,
        });
        Ok(shared)
    }

    fn with<T>(&self, id: usize, f: impl FnOnce(&mut Stream) -> T) -> Result<T, LiveError> {
        let shared = self.shared()?.ok_or(LiveError::Gone)?;
        let mut state = shared.lock();
        state.streams.get_mut(&id).map(f).ok_or(LiveError::Gone)
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_foreign() {
            // The poller is shared with the parent, and its thread is not here: nothing may be touched.
            if let Ok(inner) = self.inner.get_mut() {
                std::mem::forget(inner.take());
            }
            return;
        }
        self.close();
    }
}

/// Whether this process was forked from the one that the locks and the thread are in.
fn is_foreign(process: u32) -> bool {
    std::process::id() != process
}

#[cfg(target_os = "linux")]
fn enlarge(descriptor: impl AsFd) {
    // Refused for what is no pipe, and where the user's pipes hold too much already: then it stays as it is.
    if rustix::pipe::fcntl_getpipe_size(&descriptor).is_ok_and(|size| size < PIPE) {
        let _ = rustix::pipe::fcntl_setpipe_size(&descriptor, PIPE);
    }
}

#[cfg(not(target_os = "linux"))]
fn enlarge(_descriptor: impl AsFd) {}

/// Where the system allows it (to root, as a rule): the thread has little to do, and hundreds of producers wait for it.
#[cfg(target_os = "linux")]
fn hurry() {
    const NICE: i32 = -10;
    let _ = rustix::process::setpriority_process(None, NICE); // on Linux, of this thread alone
}

#[cfg(not(target_os = "linux"))]
fn hurry() {}

/// The thread: takes what is there, one block a stream and round.
fn drain(shared: &Arc<Shared>) {
    hurry();
    let mut hands = Hands::default();
    let mut events = Events::new();
    let mut loans = Loans::default();
    loop {
        events.clear();
        if let Err(error) = shared.poller.wait(&mut events, loans.timeout())
            && error.kind() != io::ErrorKind::Interrupted
        {
            let mut state = shared.lock();
            let ids: Vec<usize> = state.streams.keys().copied().collect();
            for id in ids {
                state.fail(shared, id, io::Error::new(error.kind(), error.to_string()));
            }
            return;
        }
        if shared.lock().closing {
            return;
        }
        for event in events.iter() {
            let (file, has_room) = {
                let mut state = shared.lock();
                let Some(stream) = state.streams.get_mut(&event.key) else {
                    continue; // removed meanwhile
                };
                let Some(file) = stream.file.clone() else {
                    continue;
                };
                if loans.leave(shared, event.key, stream) || stream.is_read {
                    continue;
                }
                stream.is_read = true;
                let has_room = state.has_room(event.key);
                (file, has_room)
            };
            let moved = shared.move_on(&mut hands, event.key, &file, has_room);
            if let Some(stream) = shared.lock().streams.get_mut(&event.key) {
                stream.is_read = false;
            }
            match moved {
                Ok(0) => shared.lock().finish(shared, event.key, Ok(())),
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                // what a terminal says when the last program on it has ended
                Err(error) if error.raw_os_error() == Some(5) => {
                    shared.lock().finish(shared, event.key, Ok(()));
                }
                Err(error) => shared.lock().fail(shared, event.key, error),
            }
        }
        loans.look(shared);
    }
}

/// What the thread carries bytes with.
#[derive(Default)]
struct Hands {
    /// Made when it is needed first; None where there is no such thing.
    #[cfg(target_os = "linux")]
    relay: Option<relay::Relay>,
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A range of the spill file is free again.
    fn release(&self, at: u64, size: u64) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        match state.spill.release(at, size) {
            None => state,
            Some(hole) => {
                drop(state); // the disk may be slow, and the producers must not feel it
                self.punch(&[hole]);
                self.lock()
            }
        }
    }

    /// A range of the spill file is the stream's now.
    fn queue_spilled(&self, id: usize, at: u64, size: u64) {
        let mut state = self.lock();
        match state.streams.get_mut(&id) {
            Some(stream) => {
                stream.push_spilled(at, size);
                state.tell(self, id);
            }
            None => {
                drop(state); // removed meanwhile
                drop(self.release(at, size));
            }
        }
    }

    fn punch(&self, holes: &[Hole]) {
        for hole in holes {
            hole.punch();
            self.lock().spill.freed(hole);
        }
    }

    /// Takes a block from a descriptor; how many bytes it had. Only the thread calls this, with `is_read` set, so a stream
    /// stays in order even while the lock is given back for the disk.
    fn move_on(
        &self,
        hands: &mut Hands,
        id: usize,
        file: &File,
        has_room: bool,
    ) -> io::Result<usize> {
        #[cfg(target_os = "linux")]
        if !has_room && let Some(moved) = self.move_unseen(hands, id, file) {
            return moved;
        }
        let _ = (has_room, hands);
        let mut block = self.pool.block();
        let size = rustix::io::read(file, spare_capacity(&mut block))?;
        self.deliver(id, block);
        Ok(size)
    }

    /// From the pipe into the spill file; the bytes never come here. None for what is no pipe.
    #[cfg(target_os = "linux")]
    fn move_unseen(&self, hands: &mut Hands, id: usize, file: &File) -> Option<io::Result<usize>> {
        if hands.relay.is_none() {
            hands.relay = relay::Relay::new(PIPE).ok();
        }
        let relay = hands.relay.as_mut()?;
        let size = match relay.fill(file) {
            Ok(0) => return Some(Ok(0)),
            Ok(size) => size,
            Err(error) if is_passing(&error) => return Some(Err(error)),
            Err(_) => return None, // the plain read tells what is wrong, if anything is
        };
        let reserved = {
            let mut state = self.lock();
            match state.streams.get_mut(&id) {
                None => Ok(None), // removed meanwhile
                Some(stream) => {
                    stream.total += size as u64;
                    stream.last = Instant::now();
                    state.spill.reserve(size as u64).map(Some)
                }
            }
        };
        let spilled = match reserved {
            Ok(Some((file, at))) => {
                let rest = relay.empty_into(&file, at);
                let written = file.write_all_at(&rest, at + (size - rest.len()) as u64);
                written
                    .map(|()| at)
                    .map_err(|error| (error, Some(at), rest))
            }
            Ok(None) => {
                relay.empty();
                return Some(Ok(size));
            }
            Err(error) => Err((error, None, relay.empty())),
        };
        match spilled {
            Ok(at) => self.queue_spilled(id, at, size as u64),
            Err((error, at, rest)) => {
                if let Some(at) = at {
                    let done = (size - rest.len()) as u64;
                    if done > 0 {
                        self.queue_spilled(id, at, done);
                    }
                    drop(self.release(at + done, rest.len() as u64));
                }
                self.lock().overflow(self, id, &rest, error);
            }
        }
        Some(Ok(size))
    }

    /// Puts what was read into the queue of its stream.
    fn deliver(&self, id: usize, block: Vec<u8>) {
        let left = self.deliver_from(id, block);
        self.pool.put_back(left);
    }

    /// Gives back the block, or one that takes its place in the pool.
    fn deliver_from(&self, id: usize, block: Vec<u8>) -> Vec<u8> {
        let bytes = &block[..];
        let size = bytes.len() as u64;
        let mut state = self.lock();
        let State {
            streams,
            memory,
            memory_limit,
            spill,
            ..
        } = &mut *state;
        let Some(stream) = streams.get_mut(&id) else {
            return block; // removed meanwhile
        };
        if bytes.is_empty() {
            return block;
        }
        stream.note(bytes);
        if !stream.keep {
            return block;
        }
        if bytes.len() > block.capacity() / 2 && *memory + block.capacity() as u64 <= *memory_limit
        {
            stream.push_block(block, memory);
            state.tell(self, id);
            return Vec::new();
        }
        if *memory + size <= *memory_limit {
            stream.push_memory(bytes, memory);
            state.tell(self, id);
            return block;
        }
        let written = match spill.reserve(size) {
            Ok((file, at)) => {
                drop(state);
                let written = file.write_all_at(bytes, at);
                written
                    .map(|()| at)
                    .inspect_err(|_| drop(self.release(at, size)))
            }
            Err(error) => {
                drop(state);
                Err(error)
            }
        };
        match written {
            Ok(at) => self.queue_spilled(id, at, size),
            Err(error) => self.lock().overflow(self, id, bytes, error),
        }
        block
    }
}

impl State {
    /// Whether what waits in the stream's descriptor may be copied into memory, or has to be seen for another reason.
    fn has_room(&self, id: usize) -> bool {
        let Some(stream) = self.streams.get(&id) else {
            return true;
        };
        if !stream.keep || stream.tail_limit > 0 {
            return true;
        }
        let left = self.memory_limit.saturating_sub(self.memory);
        left >= BLOCK as u64
            || stream
                .file
                .as_ref()
                .and_then(|file| rustix::io::ioctl_fionread(file).ok())
                .is_none_or(|waits| waits <= left)
    }

    /// There is no room. What was read is delivered, over the limit by one block; nothing more is read.
    fn overflow(&mut self, shared: &Shared, id: usize, bytes: &[u8], error: io::Error) {
        let dir = self.spill.dir();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.push_memory(bytes, &mut self.memory);
            let name = stream.name.clone();
            self.finish(shared, id, Err(LiveError::Spill { name, dir, error }));
        }
    }

    /// The stream is over.
    fn finish(&mut self, shared: &Shared, id: usize, end: Result<(), LiveError>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.let_go(&shared.poller);
            stream.is_lent = false;
            stream.end = Some(end);
        }
        self.tell(shared, id);
    }

    fn fail(&mut self, shared: &Shared, id: usize, error: io::Error) {
        if let Some(stream) = self.streams.get(&id) {
            let name = stream.name.clone();
            self.finish(shared, id, Err(LiveError::Read { name, error }));
        }
    }

    /// Wakes who waits for this stream.
    fn tell(&mut self, shared: &Shared, id: usize) {
        shared.changed.notify_all();
        if let Some(stream) = self.streams.get_mut(&id)
            && !std::mem::replace(&mut stream.in_news, true)
        {
            self.news.push(id);
            self.signal();
        }
    }

    fn signal(&mut self) {
        if let Some(wake) = &mut self.wake
            && !std::mem::replace(&mut wake.signalled, true)
        {
            let _ = wake.writer.write(&[1]); // the pipe is empty: this can't wait
        }
    }

    fn forget_queue(&mut self, id: usize) -> Vec<Hole> {
        let State {
            streams,
            memory,
            spill,
            ..
        } = self;
        let mut holes = Vec::new();
        if let Some(stream) = streams.get_mut(&id) {
            for piece in stream.queue.drain(..) {
                match piece {
                    Piece::Memory(bytes) => *memory -= bytes.capacity() as u64,
                    Piece::Spilled { at, size } => holes.extend(spill.release(at, size)),
                }
            }
        }
        holes
    }
}

impl Stream {
    /// Ends the draining and closes the descriptor.
    fn let_go(&mut self, poller: &Poller) {
        if let Some(file) = self.file.take() {
            let _ = poller.delete(&*file);
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        self.last = Instant::now();
        if self.tail_limit > 0 {
            let new = &bytes[bytes.len().saturating_sub(self.tail_limit)..];
            let room = self.tail_limit - new.len();
            let old = self.tail.len().saturating_sub(room);
            self.tail.drain(..old);
            self.tail.extend(new);
        }
    }

    fn push_memory(&mut self, bytes: &[u8], memory: &mut u64) {
        if let Some(Piece::Memory(last)) = self.queue.back_mut()
            && last.len() + bytes.len() <= JOINED
        {
            let before = last.capacity();
            last.extend_from_slice(bytes);
            *memory += (last.capacity() - before) as u64;
            return;
        }
        self.push_block(bytes.to_vec(), memory);
    }

    fn push_block(&mut self, piece: Vec<u8>, memory: &mut u64) {
        *memory += piece.capacity() as u64;
        self.queue.push_back(Piece::Memory(piece));
    }

    fn push_spilled(&mut self, new: u64, more: u64) {
        if let Some(Piece::Spilled { at, size }) = self.queue.back_mut()
            && *at + *size == new
            && !new.is_multiple_of(REGION)
            && *size + more <= SPILLED
        {
            *size += more;
            return;
        }
        self.queue.push_back(Piece::Spilled {
            at: new,
            size: more,
        });
    }

    /// The pieces in memory at the front, up to about `most` bytes.
    fn take_memory(&mut self, memory: &mut u64, most: usize, pool: &Pool) -> Vec<u8> {
        let mut taken = Vec::new();
        while let Some(Piece::Memory(piece)) = self.queue.front() {
            if !taken.is_empty() && taken.len() + piece.len() > most {
                break;
            }
            let Some(Piece::Memory(piece)) = self.queue.pop_front() else {
                break;
            };
            *memory -= piece.capacity() as u64;
            if taken.is_empty() {
                taken = piece;
            } else {
                taken.extend_from_slice(&piece);
                pool.put_back(piece);
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests;
