//! Members that are read of many records, looked up once for each shape.

use super::template::Shape;
use super::value::Value;

/// Shapes whose spots are kept.
const KNOWN: usize = 16;

/// Where a value is in the record: what [`Value::at`] takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot(pub(super) u32);

impl Spot {
    /// Of a member that is not there. It is the root's spot, and no path leads there.
    pub(super) const NOWHERE: Spot = Spot(0);
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
    /// The spot of what [`Value::path`] finds from `root`, the whole value of a text of that shape, for each path. They
    /// must always be the same paths, none of them empty.
    #[inline]
    pub fn spots(
        &mut self,
        paths: &[&[&str]; N],
        root: Value<'_>,
        shape: Option<Shape>,
    ) -> [Spot; N] {
        if let Some(shape) = shape {
            let (number, spots) = &self.known[shape.number() as usize % KNOWN];
            if *number == shape.number() {
                return *spots;
            }
        }
        self.search(paths, root, shape)
    }

    #[inline(never)]
    fn search(&mut self, paths: &[&[&str]; N], root: Value<'_>, shape: Option<Shape>) -> [Spot; N] {
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
