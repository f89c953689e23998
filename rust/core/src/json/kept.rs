//! A parsed value that outlives the text it came from.

use std::sync::{Arc, OnceLock};

use super::tape::Node;
use super::template::{Fitted, Pattern};
use super::value::{Doc, Value};

/// A copy of a value: its text and its nodes, so that it need not be parsed again.
#[derive(Debug)]
pub struct Kept {
    /// The nodes, or only those of the slots of a pattern, and then the text: one block of memory.
    block: Box<[Node]>,
    /// How many nodes there are before the text.
    count: usize,
    /// Bytes of the text.
    len: usize,
    pattern: Option<Arc<Pattern>>,
    /// Of a text that fits a pattern: made when they are asked for.
    nodes: OnceLock<Box<[Node]>>,
}

impl Kept {
    /// Keeps the value of a text.
    #[inline]
    pub fn new(doc: &Doc<'_>) -> Self {
        let (text, nodes, pattern) = match doc.fitted() {
            Some(Fitted { pattern, slots }) => (doc.text, slots, Some(pattern.clone())),
            None => {
                let value = doc.root();
                (value.raw_str(), value.own_nodes(), None)
            }
        };
        let len = nodes.len() + text.len().div_ceil(size_of::<Node>());
        let mut block = Vec::with_capacity(len);
        block.extend_from_slice(nodes);
        if pattern.is_none() {
            let base = nodes[0].start;
            for node in &mut block {
                node.start -= base;
                node.end -= base;
            }
        }
        push_text(&mut block, text);
        Kept {
            block: block.into(),
            count: nodes.len(),
            len: text.len(),
            pattern,
            nodes: OnceLock::new(),
        }
    }

    #[inline]
    fn text(&self) -> &str {
        let text = &bytes(&self.block[self.count..])[..self.len];
        // SAFETY: it is the copy of a `str`, and nobody has changed it.
        unsafe { std::str::from_utf8_unchecked(text) }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> Value<'_> {
        let own = &self.block[..self.count];
        let nodes = match &self.pattern {
            Some(pattern) => self.nodes.get_or_init(|| pattern.nodes(own)),
            None => own,
        };
        Value {
            text: self.text(),
            nodes,
        }
    }

    /// [`Value::get`] of the value. Often its other members need not be looked at for that.
    pub fn get(&self, key: &str) -> Option<Value<'_>> {
        let Some(pattern) = &self.pattern else {
            return self.value().get(key);
        };
        // All texts that fit have the same members in the same places.
        let spot = pattern.spot(&[key]);
        if !spot.is_there() {
            return None;
        }
        let slots = &self.block[..self.count];
        let at = Fitted { pattern, slots }.at(spot, self.text());
        at.or_else(|| self.value().at(spot))
    }

    /// The pattern that the value fits, and the values in its slots.
    #[inline]
    pub fn slots(&self) -> Option<(&Pattern, impl Iterator<Item = Value<'_>>)> {
        let pattern = self.pattern.as_ref()?;
        let text = self.text();
        let value = move |node| Value {
            text,
            nodes: std::slice::from_ref(node),
        };
        Some((pattern, self.block[..self.count].iter().map(value)))
    }
}

/// Puts the bytes of a text behind nodes.
#[inline]
fn push_text(block: &mut Vec<Node>, text: &str) {
    let count = text.len().div_ceil(size_of::<Node>());
    block.reserve(count);
    let room = &mut block.spare_capacity_mut()[..count];
    if let Some(last) = room.last_mut() {
        last.write(Node::default()); // the text may fill only a part of it
    }
    // SAFETY: there is room for so many nodes, which is for at least so many bytes; any bytes are four integers.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), room.as_mut_ptr().cast(), text.len());
        block.set_len(block.len() + count);
    }
}

/// The bytes of nodes.
#[inline]
fn bytes(nodes: &[Node]) -> &[u8] {
    // SAFETY: a node is four integers and nothing between them, of which every byte may be read.
    unsafe { std::slice::from_raw_parts(nodes.as_ptr().cast(), size_of_val(nodes)) }
}
