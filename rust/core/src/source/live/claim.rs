//! Bytes that were taken of a stream, wherever they are: a thread that has time reads them back from the disk.

use std::sync::Arc;

use super::spill::read_back;
use super::{BLOCK, LiveError, Piece, Shared, is_foreign};

/// The next bytes of a stream, which nobody else gets. Dropped, they are gone.
pub struct Claim {
    shared: Arc<Shared>,
    stream: usize,
    piece: Piece,
}

impl Claim {
    pub(super) fn new(shared: Arc<Shared>, stream: usize, piece: Piece) -> Self {
        Claim {
            shared,
            stream,
            piece,
        }
    }

    /// How many bytes.
    pub fn size(&self) -> u64 {
        match &self.piece {
            Piece::Memory(bytes) => bytes.len() as u64,
            Piece::Spilled { size, .. } => *size,
        }
    }

    /// The bytes, once they are in memory. An error comes again from [`Live::take`](super::Live::take): it is the
    /// stream's end.
    pub fn bytes(&mut self) -> Result<&mut Vec<u8>, LiveError> {
        if let Piece::Spilled { at, size } = self.piece {
            self.piece = Piece::Memory(self.read(at, size)?);
        }
        match &mut self.piece {
            Piece::Memory(bytes) => Ok(bytes),
            Piece::Spilled { .. } => unreachable!("it was read"),
        }
    }

    pub fn into_bytes(mut self) -> Result<Vec<u8>, LiveError> {
        self.bytes().map(std::mem::take)
    }

    /// Reads the range, without the lock, and gives it back.
    fn read(&self, at: u64, size: u64) -> Result<Vec<u8>, LiveError> {
        let Claim { shared, stream, .. } = self;
        if is_foreign(shared.process) {
            return Err(LiveError::Forked); // the locks may be held by threads that are not there
        }
        let file = shared.lock().spill.file();
        let file = file.expect("a piece that was spilled is in a file");
        let room = if size <= BLOCK as u64 {
            shared.pool.block()
        } else {
            Vec::with_capacity(size as usize)
        };
        let error = match read_back(&file, at, size as usize, room) {
            Ok(bytes) => {
                drop(shared.release(at, size));
                return Ok(bytes);
            }
            Err(error) => error,
        };
        let mut state = shared.lock();
        let dir = state.spill.dir();
        let name = state
            .streams
            .get(stream)
            .ok_or(LiveError::Gone)?
            .name
            .clone();
        let error = LiveError::Spill { name, dir, error };
        let again = error.again();
        state.finish(shared, *stream, Err(error));
        let holes = state.forget_queue(*stream);
        drop(state);
        shared.punch(&holes);
        Err(again)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        match &mut self.piece {
            Piece::Memory(bytes) => self.shared.pool.put_back(std::mem::take(bytes)),
            Piece::Spilled { at, size } if !is_foreign(self.shared.process) => {
                drop(self.shared.release(*at, *size));
            }
            Piece::Spilled { .. } => {}
        }
    }
}
