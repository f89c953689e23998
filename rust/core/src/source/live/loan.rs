//! Streams that are lent to their consumer: an event loop that waits for the descriptor itself has what is written
//! without the way through the thread.
//!
//! The thread goes on looking at the descriptor. What the consumer leaves there from one look to the next, or what is
//! much, it reads itself, and the loan is over. So a pipe is emptied whatever the consumer does.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use polling::{Event, PollMode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{Claim, Live, LiveError, Piece, Shared, Stream, Taken};

/// Between two looks: what is written waits no longer than two of them for the consumer.
const LOOK: Duration = Duration::from_millis(3);
/// After so many looks at a stream that nothing came of, its next byte wakes the thread instead.
const QUIET: u32 = 15;
/// So much never waits for the consumer: an eighth of a pipe.
const MUCH: u64 = 1 << 15;
/// After a loan that the thread has ended, so long there is no other.
const PAUSE: Duration = Duration::from_millis(50);
/// A consumer reads so much at a time.
const ROOM: usize = 1 << 14;

impl Live {
    /// Lends a stream to the caller, who waits for its descriptor and calls [`Live::take`] when it is readable. None
    /// when it can't be lent now: something of it waits or is being read, it is over, or it came too fast a moment ago.
    ///
    /// The loan ends with [`Live::give_back`], or when the thread had to read the stream itself, which then has news.
    /// The file is the stream's own: nothing may read it but `take`.
    pub fn lend(&self, id: usize) -> Result<Option<Arc<File>>, LiveError> {
        let shared = self.shared()?.ok_or(LiveError::Gone)?;
        let mut state = shared.lock();
        let stream = state.streams.get_mut(&id).ok_or(LiveError::Gone)?;
        if !stream.can_be_lent() {
            return Ok(None);
        }
        let lent = stream.lend(&shared, id);
        Ok(lent.then(|| stream.file.clone()).flatten())
    }

    /// The thread reads the stream again, from now on.
    pub fn give_back(&self, id: usize) -> Result<(), LiveError> {
        let Some(shared) = self.shared()? else {
            return Ok(());
        };
        if let Some(stream) = shared.lock().streams.get_mut(&id) {
            stream.take_back(&shared, id);
        }
        Ok(())
    }

    /// Reads what there is of a stream that is lent, and whose `is_read` is set for this.
    pub(super) fn claim_lent(
        &self,
        shared: &Arc<Shared>,
        id: usize,
        file: &File,
    ) -> Result<Taken<Claim>, LiveError> {
        let mut room = [0; ROOM];
        let read = read_now(file, &mut room);
        let mut state = shared.lock();
        let stream = state.streams.get_mut(&id).ok_or(LiveError::Gone)?;
        stream.is_read = false;
        match read {
            Ok(None) => {}
            Ok(Some(0)) => {
                state.finish(shared, id, Ok(()));
                return Ok(Taken::End);
            }
            Ok(Some(size)) => {
                let bytes = &room[..size];
                stream.note(bytes);
                if stream.keep {
                    let piece = Piece::Memory(bytes.to_vec());
                    return Ok(Taken::Bytes(Claim::new(shared.clone(), id, piece)));
                }
            }
            // the thread will find the same, and tell of it
            Err(_) => stream.take_back(shared, id),
        }
        Ok(Taken::Nothing)
    }
}

/// What there is, as much as `room` takes; None if there is nothing yet, and it is not over.
fn read_now(file: &File, room: &mut [u8]) -> io::Result<Option<usize>> {
    let read = match read_without_waiting(file, room) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            let mut readable = [PollFd::new(file, PollFlags::IN)];
            match poll(&mut readable, Some(&Timespec::default())) {
                Ok(0) => return Ok(None),
                Ok(_) => rustix::io::read(file, room),
                Err(error) => Err(error),
            }
        }
        read => read,
    };
    match read {
        Ok(size) => Ok(Some(size)),
        Err(Errno::INTR | Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// For pipes, from Linux 6.4 on.
#[cfg(target_os = "linux")]
fn read_without_waiting(file: &File, room: &mut [u8]) -> Result<usize, Errno> {
    use rustix::io::{ReadWriteFlags, preadv2};
    const NEXT: u64 = u64::MAX; // as opposed to a place in a file
    let mut room = [io::IoSliceMut::new(room)];
    preadv2(file, &mut room, NEXT, ReadWriteFlags::NOWAIT)
}

#[cfg(not(target_os = "linux"))]
fn read_without_waiting(_file: &File, _room: &mut [u8]) -> Result<usize, Errno> {
    Err(Errno::OPNOTSUPP)
}

impl Stream {
    fn can_be_lent(&self) -> bool {
        self.keep
            && !self.is_lent
            && !self.is_read
            && self.queue.is_empty()
            && self.end.is_none()
            && self
                .not_lent_before
                .is_none_or(|when| Instant::now() >= when)
    }

    /// Whether it worked.
    fn lend(&mut self, shared: &Shared, id: usize) -> bool {
        self.is_lent = self.watch(shared, id, PollMode::Oneshot);
        self.is_lent
    }

    fn take_back(&mut self, shared: &Shared, id: usize) {
        if std::mem::take(&mut self.is_lent) {
            self.watch(shared, id, PollMode::Level);
        }
    }

    /// Has the thread look at the descriptor: once, or from now on.
    fn watch(&self, shared: &Shared, id: usize, mode: PollMode) -> bool {
        self.file.as_ref().is_some_and(|file| {
            let event = Event::readable(id);
            shared.poller.modify_with_mode(&**file, event, mode).is_ok()
        })
    }
}

/// What the thread knows of loans: the streams that something came of lately. It looks at them by the clock: to be woken
/// by each write, at the same moment as the consumer, would only be in the consumer's way. The others wake it.
#[derive(Default)]
pub(super) struct Loans {
    lively: Vec<Lively>,
    /// When it looks again, if there are any.
    next: Option<Instant>,
}

struct Lively {
    id: usize,
    /// How many bytes had been read when it was last looked at.
    total: u64,
    /// Something waited then.
    waited: bool,
    /// How often nothing had come.
    quiet: u32,
}

impl Loans {
    /// How long the thread may wait for something else.
    pub fn timeout(&self) -> Option<Duration> {
        let next = self.next?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// A descriptor is readable: whether that is left to the consumer for now.
    pub fn leave(&mut self, shared: &Shared, id: usize, stream: &mut Stream) -> bool {
        if !stream.is_lent {
            return false;
        }
        if stream.waits() >= MUCH && !stream.is_read {
            stream.call_in(shared, id);
            return false;
        }
        self.lively.push(Lively {
            id,
            total: stream.total,
            waited: true,
            quiet: 0,
        });
        self.next.get_or_insert_with(|| Instant::now() + LOOK);
        true
    }

    /// Looks at the lively ones, when it is time to.
    pub fn look(&mut self, shared: &Shared) {
        if self.next.is_none_or(|next| Instant::now() < next) {
            return;
        }
        let mut state = shared.lock();
        self.lively.retain_mut(|lively| {
            let stream = state.streams.get_mut(&lively.id);
            stream.is_some_and(|stream| lively.look(shared, stream))
        });
        drop(state);
        self.next = (!self.lively.is_empty()).then(|| Instant::now() + LOOK);
    }
}

impl Lively {
    /// Whether it goes on being lent and lively.
    fn look(&mut self, shared: &Shared, stream: &mut Stream) -> bool {
        if !stream.is_lent {
            return false;
        }
        let (waits, moved) = (stream.waits(), stream.total != self.total);
        if stream.is_read {
            return true;
        }
        if waits >= MUCH || (waits > 0 && self.waited && !moved) {
            stream.call_in(shared, self.id);
            return false;
        }
        self.total = stream.total;
        self.waited = waits > 0;
        self.quiet = if waits > 0 || moved {
            0
        } else {
            self.quiet + 1
        };
        if self.quiet < QUIET {
            return true;
        }
        stream.lend(shared, self.id);
        false
    }
}

impl Stream {
    /// How many bytes are in its descriptor.
    fn waits(&self) -> u64 {
        let waits = |file: &Arc<File>| rustix::io::ioctl_fionread(file).unwrap_or(0);
        self.file.as_ref().map_or(0, waits)
    }

    /// The thread ends the loan.
    fn call_in(&mut self, shared: &Shared, id: usize) {
        self.take_back(shared, id);
        self.not_lent_before = Some(Instant::now() + PAUSE);
    }
}
