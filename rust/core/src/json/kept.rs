//! A parsed value that outlives the text it came from.

use std::sync::{Arc, OnceLock};

use super::tape::Node;
use super::template::{Fitted, Pattern};
use super::value::{Doc, Value};

/// A copy of a value: its text and its nodes, so that it need not be parsed again.
#[derive(Debug)]
pub struct Kept {
    text: Box<str>,
    /// Of a text that fits a pattern: made when they are asked for.
    nodes: OnceLock<Box<[Node]>>,
    slots: Option<(Arc<Pattern>, Box<[Node]>)>,
}

impl Kept {
    /// Keeps the value of a text.
    pub fn new(doc: &Doc<'_>) -> Self {
        if let Some(Fitted { pattern, slots }) = doc.fitted() {
            return Kept {
                text: doc.text.into(),
                nodes: OnceLock::new(),
                slots: Some((pattern.clone(), slots.into())),
            };
        }
        let value = doc.root();
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
            nodes: nodes.into(),
            slots: None,
        }
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> Value<'_> {
        let nodes = self.nodes.get_or_init(|| match &self.slots {
            Some((pattern, slots)) => pattern.nodes(slots),
            None => Box::default(), // can't be: then there are nodes from the start
        });
        Value {
            text: &self.text,
            nodes,
        }
    }

    /// The pattern that the value fits, and the values in its slots.
    pub fn slots(&self) -> Option<(&Pattern, impl Iterator<Item = Value<'_>>)> {
        let (pattern, slots) = self.slots.as_ref()?;
        let value = |node| Value {
            text: &self.text,
            nodes: std::slice::from_ref(node),
        };
        Some((pattern, slots.iter().map(value)))
    }
}
