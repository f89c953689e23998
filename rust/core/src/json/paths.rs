//! Members that are read of many records, looked up once for each shape, and what they say once for each pattern.

use super::template::{Pattern, Shape};
use super::value::Doc;

/// Shapes whose spots are kept.
const KNOWN: usize = 16;

/// Where a value is in the record: what [`Value::at`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot(pub(super) u32);

impl Spot {
    /// Of a member that is not there. It is the root's spot, and no path leads there.
    pub(super) const NOWHERE: Spot = Spot(0);

    /// Whether the member is there.
    pub fn is_there(self) -> bool {
        self != Spot::NOWHERE
    }
}

/// Where a fixed list of paths leads in the records of each shape.
///
/// A record without a shape is searched; the answers are the same.
#[derive(Debug)]
pub struct Paths<const N: usize> {
    /// By number of the shape; 0 is none.
    known: [(u32, [Spot; N]); KNOWN],
}

impl<const N: usize> Default for Paths<N> {
    fn default() -> Self {
        Paths {
            known: [(0, [Spot::NOWHERE; N]); KNOWN],
        }
    }
}

impl<const N: usize> Paths<N> {
    /// The spot of what [`Value::path`](super::Value::path) finds in the text, for each path. They must always be the
    /// same paths, none of them empty.
    #[inline]
    pub fn spots(&mut self, paths: &[&[&str]; N], doc: &Doc<'_>) -> [Spot; N] {
        let shape = doc.fitted().map(|fitted| fitted.shape());
        if let Some(shape) = shape {
            let (number, spots) = &self.known[shape.number() as usize % KNOWN];
            if *number == shape.number() {
                return *spots;
            }
        }
        self.search(paths, doc, shape)
    }

    #[inline(never)]
    fn search(&mut self, paths: &[&[&str]; N], doc: &Doc<'_>, shape: Option<Shape>) -> [Spot; N] {
        let root = doc.root();
        let spots = paths.map(|path| {
            let found = root.path(path);
            found.map_or(Spot::NOWHERE, |value| root.spot_of(value))
        });
        if let Some(shape) = shape {
            self.known[shape.number() as usize % KNOWN] = (shape.number(), spots);
        }
        spots
    }
}

/// What is to be done with the texts that fit a pattern, found out once for each of them.
#[derive(Debug)]
pub struct Plans<T> {
    /// By number of the pattern; 0 is none.
    known: [(u32, Option<T>); KNOWN],
}

impl<T: Copy> Default for Plans<T> {
    fn default() -> Self {
        Plans {
            known: [(0, None); KNOWN],
        }
    }
}

impl<T: Copy> Plans<T> {
    /// What `make` says of the pattern, now or when it was asked last. It must say the same each time.
    #[inline]
    pub fn of(&mut self, pattern: &Pattern, make: impl FnOnce() -> Option<T>) -> Option<T> {
        let known = &mut self.known[pattern.number() as usize % KNOWN];
        if known.0 != pattern.number() {
            *known = (pattern.number(), make());
        }
        known.1
    }
}
