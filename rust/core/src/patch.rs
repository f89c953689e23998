//! Patches: unified diffs and the `*** Begin Patch` format, as diff blocks and locations.
//!
//! Each hunk becomes a diff block of its own whose texts are the hunk's lines: the file around them is not known, and
//! nothing is made up.

use crate::event::{Item, Location};
use crate::json::Text;
use crate::tool::{self, Hunk};

/// The lines of a hunk as they come: such a patch does not count them.
#[derive(Default)]
struct Body {
    old: String,
    new: String,
    /// The sign of the line above.
    last: u8,
}

impl Body {
    fn take(&mut self, line: &str) {
        let sign = line.bytes().next().unwrap_or(0);
        // "\ No newline at end of file": said of the line above
        let unended = sign == b'\\';
        let sign = if unended { self.last } else { sign };
        for (text, other) in [(&mut self.old, b'+'), (&mut self.new, b'-')] {
            if !b" +-".contains(&sign) || sign == other {
                continue;
            }
            if !unended {
                text.push_str(&line[1..]);
                text.push('\n');
            } else if text.ends_with('\n') {
                text.pop();
            }
        }
        self.last = if unended { 0 } else { sign };
    }

    fn is_empty(&self) -> bool {
        self.old.is_empty() && self.new.is_empty()
    }
}

/// Diff blocks and the location of one file's unified diff.
pub fn blocks_of_diff<'a>(path: &Text<'a>, diff: &str) -> (Vec<Item<'a>>, Vec<Location<'a>>) {
    let found = tool::hunks(diff);
    let location = Location {
        path: path.clone(),
        line: found.first().map(|hunk| hunk.line).filter(|line| *line > 0),
    };
    let block = |hunk: Hunk| Item::Diff {
        path: path.clone(),
        old: hunk.old.map(Text::from),
        new: hunk.new.into(),
    };
    (found.into_iter().map(block).collect(), vec![location])
}

/// Diff blocks and locations of a patch in the `*** Begin Patch` format; both empty if it is none.
pub fn blocks_of_patch(patch: &str) -> (Vec<Item<'static>>, Vec<Location<'static>>) {
    let (mut content, mut locations) = (Vec::new(), Vec::new());
    let start = patch.trim_start_matches([' ', '\t', '\r', '\n']);
    if !start.starts_with("*** Begin Patch") {
        return (content, locations);
    }
    let (mut path, mut adds) = ("", false);
    let mut body = Body::default();
    for line in patch.split('\n').chain(["*** End Patch"]) {
        let (directive, name) = line.split_once(": ").unwrap_or((line, ""));
        let file = ["*** Add File", "*** Update File", "*** Delete File"].contains(&directive);
        let ends = file || line == "*** End Patch";
        if ends || line.starts_with("@@") {
            let body = std::mem::take(&mut body);
            if !path.is_empty() && !body.is_empty() {
                content.push(Item::Diff {
                    path: path.to_owned().into(),
                    old: (!adds).then(|| body.old.into()),
                    new: body.new.into(),
                });
            }
        }
        if ends || directive == "*** Move to" {
            if ends {
                (path, adds) = (name, directive == "*** Add File");
            }
            if !ends || !path.is_empty() {
                locations.push(Location {
                    path: name.to_owned().into(),
                    line: None,
                });
            }
        } else if !line.starts_with("@@") && !line.starts_with("*** ") {
            body.take(line);
        }
    }
    (content, locations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unified_diff_needs_no_names() {
        let path = Text::from("n.txt");
        let (content, locations) =
            blocks_of_diff(&path, "@@ -1,2 +3,2 @@\n alpha\n-beta\n+gamma\n");
        let [Item::Diff { old, new, .. }] = &content[..] else {
            panic!("one hunk is one block");
        };
        assert_eq!(
            (old.as_deref(), &**new),
            (Some("alpha\nbeta\n"), "alpha\ngamma\n")
        );
        assert_eq!(locations[0].line, Some(3));
        assert!(blocks_of_diff(&path, "no hunk at all").0.is_empty());
    }

    #[test]
    fn a_patch_gives_its_files() {
        let patch = "*** Begin Patch\n*** Update File: a\n*** Move to: b\n@@\n-x\n+y\n*** Add File: n\n+1\n*** Delete File: z\n*** End Patch\n";
        let (content, locations) = blocks_of_patch(patch);
        let paths: Vec<_> = locations.iter().map(|place| &*place.path).collect();
        assert_eq!(paths, ["a", "b", "n", "z"]);
        let texts = |item: &Item<'_>| match item {
            Item::Diff { path, old, new } => format!("{} {:?} {}", &**path, old.as_deref(), &**new),
            _ => unreachable!(),
        };
        let texts: Vec<_> = content.iter().map(texts).collect();
        assert_eq!(texts, ["a Some(\"x\\n\") y\n", "n None 1\n"]);
        assert!(blocks_of_patch("echo").0.is_empty());
    }
}
