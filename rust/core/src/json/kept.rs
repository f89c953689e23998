//! A parsed value that outlives the text it came from.

use super::tape::Node;
use super::value::Value;

/// A copy of a value: its text and its nodes, so that it need not be parsed again.
#[derive(Debug)]
pub struct Kept {
    text: Box<str>,
    nodes: Box<[Node]>,
}

impl From<Value<'_>> for Kept {
    fn from(value: Value<'_>) -> Self {
        let mut nodes: Box<[Node]> = value.own_nodes().into();
        let base = nodes[0].start;
        if base > 0 {
            for node in &mut nodes {
                node.start -= base;
                node.end -= base;
            }
        }
        Kept {
            text: value.raw_str().into(),
            nodes,
        }
    }
}

impl Kept {
    /// The value.
    #[inline]
    pub fn value(&self) -> Value<'_> {
        Value {
            text: &self.text,
            nodes: &self.nodes,
        }
    }
}
