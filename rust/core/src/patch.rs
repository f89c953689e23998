//! Patches: unified diffs and the `*** Begin Patch` format, as diff blocks and locations.
//!
//! Each hunk becomes a diff block of its own whose texts are the hunk's lines: the file around them is not known, and
//! nothing is made up.

use crate::event::{Item, Location};
use crate::json::Text;

/// One hunk: the line of the new file where it begins, if told, and its text before and after.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Hunk {
    pub line: Option<i64>,
    pub old: String,
    pub new: String,
}

/// The hunks of one file's unified diff. What stands before the first `@@` is no text of the file.
pub fn hunks(diff: &str) -> Vec<Hunk> {
    let mut found = Vec::new();
    let mut body: Option<Body> = None;
    for line in diff.split('\n') {
        let header = line.starts_with("@@");
        if header || line.starts_with("diff --git ") {
            found.extend(body.take().map(|body| body.hunk));
            body = header.then(|| Body::new(new_start(line)));
        } else if let Some(body) = &mut body {
            body.take(line);
        }
    }
    found.extend(body.map(|body| body.hunk));
    found
}

/// The lines of a hunk as they come.
struct Body {
    hunk: Hunk,
    /// The sign of the line above.
    last: u8,
}

impl Body {
    fn new(line: Option<i64>) -> Self {
        let hunk = Hunk {
            line,
            ..Hunk::default()
        };
        Body { hunk, last: 0 }
    }

    fn take(&mut self, line: &str) {
        let sign = line.bytes().next().unwrap_or(0);
        // "\ No newline at end of file": said of the line above
        let unended = sign == b'\\';
        let sign = if unended { self.last } else { sign };
        for (text, other) in [(&mut self.hunk.old, b'+'), (&mut self.hunk.new, b'-')] {
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
        self.hunk.old.is_empty() && self.hunk.new.is_empty()
    }
}

/// 12 of `@@ -10,2 +12,3 @@`.
fn new_start(header: &str) -> Option<i64> {
    let (_, after) = header.split_once(" +")?;
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    let line = (0 < digits && digits < 10).then(|| after[..digits].parse().ok())??;
    (line > 0).then_some(line)
}

/// Diff blocks and the location of one file's unified diff.
pub fn blocks_of_diff<'a>(path: &Text<'a>, diff: &str) -> (Vec<Item<'a>>, Vec<Location<'a>>) {
    let found = hunks(diff);
    let location = Location {
        path: path.clone(),
        line: found.first().and_then(|hunk| hunk.line),
    };
    let block = |hunk: Hunk| Item::Diff {
        path: path.clone(),
        old: Some(hunk.old.into()),
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
    let mut body = Body::new(None);
    for line in patch.split('\n').chain(["*** End Patch"]) {
        let (directive, name) = line.split_once(": ").unwrap_or((line, ""));
        let file = ["*** Add File", "*** Update File", "*** Delete File"].contains(&directive);
        let ends = file || line == "*** End Patch";
        if ends || line.starts_with("@@") {
            let body = std::mem::replace(&mut body, Body::new(None));
            if !path.is_empty() && !body.is_empty() {
                content.push(Item::Diff {
                    path: path.to_owned().into(),
                    old: (!adds).then(|| body.hunk.old.into()),
                    new: body.hunk.new.into(),
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
    fn a_unified_diff_gives_its_hunks() {
        let diff = "--- a\n+++ b\n@@ -1,2 +3,2 @@\n alpha\n-beta\n+gamma\n@@ -9 +9 @@\n-x\n\\ No newline\n+y\n";
        let found = hunks(diff);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].line, Some(3));
        assert_eq!(found[0].old, "alpha\nbeta\n");
        assert_eq!(found[0].new, "alpha\ngamma\n");
        assert_eq!(found[1].old, "x");
        assert_eq!(found[1].new, "y\n");
        assert_eq!(hunks("no hunk at all"), []);
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
