//! Members that are read of many records, looked up once for each shape.

use super::template::Shape;
use super::value::Value;

/// Shapes whose places are kept.
const KNOWN: usize = 16;
/// Of a member that the shape does not have. It is the root's place, and no path leads there.
const NOWHERE: u16 = 0;

/// Where a fixed list of paths leads in the records of each shape.
///
/// A record without a shape is searched; the answers are the same.
#[derive(Debug)]
pub struct Paths<const N: usize> {
    /// By number of the shape; 0 is none.
    known: [(u32, [u16; N]); KNOWN],
}

impl<const N: usize> Default for Paths<N> {
    fn default() -> Self {
        Paths {
            known: [(0, [NOWHERE; N]); KNOWN],
        }
    }
}

impl<const N: usize> Paths<N> {
    /// [`Value::path`] from `root`, the whole value of a text of that shape, for each path. They must always be the same
    /// paths, none of them empty.
    #[inline]
    pub fn of<'a>(
        &mut self,
        paths: &[&[&str]; N],
        root: Value<'a>,
        shape: Option<Shape>,
    ) -> [Option<Value<'a>>; N] {
        if let Some(shape) = shape {
            let (number, places) = &self.known[shape.number() as usize % KNOWN];
            if *number == shape.number() {
                return places.map(|place| match place {
                    NOWHERE => None,
                    place => root.at(place),
                });
            }
        }
        self.search(paths, root, shape)
    }

    #[inline(never)]
    fn search<'a>(
        &mut self,
        paths: &[&[&str]; N],
        root: Value<'a>,
        shape: Option<Shape>,
    ) -> [Option<Value<'a>>; N] {
        let found = paths.map(|path| root.path(path));
        if let Some(shape) = shape {
            let place = |value: Value<'a>| u16::try_from(root.place_of(value)).unwrap_or(NOWHERE);
            let places = found.map(|value| value.map_or(NOWHERE, place));
            self.known[shape.number() as usize % KNOWN] = (shape.number(), places);
        }
        found
    }
}
