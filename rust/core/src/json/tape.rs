//! The tape: one flat list of nodes per text, in the order of the text, with links that skip over containers.

/// One value or key. Its kind is not stored: the first byte of its text tells it.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Node {
    /// Offset of the first byte: the quote of a string, the bracket of a container.
    pub start: u32,
    /// Offset after the last byte. While a container is open, the index of the container around it.
    pub end: u32,
    /// Nodes of this value with everything in it: what to step over to the next sibling.
    pub skip: u32,
    /// Elements or members of a container, flags of a string or number.
    pub info: u32,
}

impl Node {
    /// The bytes of the value.
    #[inline(always)]
    pub(super) fn bytes<'t>(&self, text: &'t str) -> &'t [u8] {
        &text.as_bytes()[self.start as usize..self.end as usize]
    }

    /// The same so much further on.
    #[inline(always)]
    pub(super) fn moved(&self, by: u32) -> Node {
        Node {
            start: self.start.wrapping_add(by),
            end: self.end.wrapping_add(by),
            ..*self
        }
    }
}

/// String: has at least one backslash.
pub(super) const ESCAPES: u32 = 1;
/// String: has at least one unpaired half of a surrogate pair.
pub(super) const LONE: u32 = 2;
/// Number: digits and sign only.
pub(super) const INTEGER: u32 = 1;

/// A node buffer to parse into, text after text.
///
/// An object is its node, then for each member the node of the key and the nodes of the value; an array is its node,
/// then the nodes of its elements. The tape borrows nothing: a [`Doc`](super::Doc) ties it to the text it describes.
#[derive(Default, Debug)]
pub struct Tape {
    /// All nodes ever used: a parse overwrites them from the start and says how many are its own.
    pub(super) nodes: Vec<Node>,
}

/// Nodes that a tape keeps for the next text: 16 MiB of them.
pub(super) const KEPT: usize = 1 << 20;

impl Tape {
    /// An empty tape. It grows with the texts it sees; the room that one huge text took is given back when the next
    /// ordinary one comes.
    pub fn new() -> Self {
        Tape::default()
    }

    /// Gives back what only a huge text needed. No text has more nodes than half its bytes and one.
    #[inline(always)]
    pub(super) fn trim(&mut self, text: &[u8]) {
        if self.nodes.len() > KEPT && text.len() <= KEPT {
            self.nodes.truncate(KEPT);
            self.nodes.shrink_to_fit();
        }
    }
}
