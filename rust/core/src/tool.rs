//! What a tool call is for people: kind, title, locations and diffs, from the table `headrace/tools.tsv`, which the
//! pure-Python backend reads too. Titles are for reading and may change; nothing parses them.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::data::Data;
use crate::event::{Item, Location, PlanEntry};
use crate::json::{Text, Value};

const TABLE: &str = include_str!("../../../python/headrace/tools.tsv");
const TITLE_LENGTH: usize = 200; // characters

/// What the table says of a call.
pub struct Described<'a> {
    pub kind: &'static str,
    pub title: Text<'a>,
    pub locations: Vec<Location<'a>>,
    pub content: Vec<Item<'a>>,
}

struct Row {
    kind: &'static str,
    title: &'static str,
    paths: Vec<&'static str>,
    diffs: Vec<Diff>,
}

/// Names of the arguments that hold a path, the old text ("-": not told) and the new text.
struct Diff {
    path: &'static str,
    old: &'static str,
    new: &'static str,
}

/// The rows by tool name, each with the dialect it is for ("*": any).
static ROWS: LazyLock<HashMap<&'static str, Vec<(&'static str, &'static Row)>>> =
    LazyLock::new(|| {
        let mut rows: HashMap<_, Vec<_>> = HashMap::new();
        let lines = TABLE.split('\n');
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut columns = line.split('\t');
            let mut column = || columns.next().unwrap_or("-");
            let (names, dialects, kind, title) = (column(), column(), column(), column());
            let (paths, diffs) = (column(), column());
            let listed = |text: &'static str, by| -> Vec<&'static str> {
                text.split(by).filter(|part| *part != "-").collect()
            };
            let row: &'static Row = Box::leak(Box::new(Row {
                kind,
                title: if title == "-" { "" } else { title },
                paths: listed(paths, ','),
                diffs: listed(diffs, ' ')
                    .into_iter()
                    .filter_map(diff_spec)
                    .collect(),
            }));
            for name in names.split(' ') {
                for dialect in dialects.split(',') {
                    rows.entry(name).or_default().push((dialect, row));
                }
            }
        }
        rows
    });

fn diff_spec(text: &'static str) -> Option<Diff> {
    let mut parts = text.split(':');
    Some(Diff {
        path: parts.next()?,
        old: parts.next()?,
        new: parts.next()?,
    })
}

fn row(dialect: &str, name: &str) -> Option<&'static Row> {
    let rows = ROWS.get(name)?;
    // The last line of the table wins, as in a dict; a line for the dialect wins over one for all.
    let find = |wanted: &str| rows.iter().rev().find(|(d, _)| *d == wanted);
    find(dialect).or_else(|| find("*")).map(|(_, row)| *row)
}

/// The kind of a tool by its name.
pub fn kind(dialect: &str, name: Option<&str>) -> &'static str {
    row(dialect, name.unwrap_or("")).map_or("other", |row| row.kind)
}

/// Kind, title, locations and diffs of a call by its tool name and arguments.
pub fn describe<'a>(dialect: &str, name: Option<&'a str>, input: &'a Data<'a>) -> Described<'a> {
    let Some(row) = row(dialect, name.unwrap_or("")) else {
        return Described {
            kind: "other",
            title: plain_title(name),
            locations: Vec::new(),
            content: Vec::new(),
        };
    };
    let mut locations = Vec::new();
    for key in &row.paths {
        paths(input, key, &mut locations);
    }
    let mut content = Vec::new();
    for spec in &row.diffs {
        diffs(spec, input, &mut content);
    }
    Described {
        kind: row.kind,
        title: fill(row.title, input)
            .filter(|title| !title.is_empty())
            .unwrap_or_else(|| plain_title(name)),
        locations,
        content,
    }
}

/// `mcp__server__tool` reads "server: tool"; any other name is its own title.
fn plain_title(name: Option<&str>) -> Text<'_> {
    let Some(name) = name else {
        return "tool".into();
    };
    if let Some((server, tool)) = name.strip_prefix("mcp__").and_then(|n| n.split_once("__"))
        && !server.is_empty()
        && !tool.is_empty()
    {
        return format!("{server}: {tool}").into();
    }
    name.into()
}

/// The template with its one placeholder filled; None if the argument is missing.
fn fill(template: &'static str, input: &Data<'_>) -> Option<Text<'static>> {
    let Some((before, rest)) = template.split_once('{') else {
        return Some(template.into());
    };
    let (names, after) = rest.split_once('}').unwrap_or((rest, ""));
    let value = argument(input, names)?;
    let line = first_line(&value);
    Some(format!("{before}{line}{after}").into())
}

/// The first line that holds something, cut to a readable length.
pub fn first_line(text: &str) -> String {
    for line in text.split('\n') {
        let line = line.trim_matches([' ', '\t', '\r']);
        if !line.is_empty() {
            return match line.char_indices().nth(TITLE_LENGTH) {
                None => line.to_owned(),
                Some(_) => line.chars().take(TITLE_LENGTH - 1).chain(['…']).collect(),
            };
        }
    }
    String::new()
}

/// The first of the arguments that is a string and not empty.
fn argument<'a>(input: &'a Data<'_>, names: &str) -> Option<Text<'a>> {
    let mut texts = names.split('|').filter_map(|name| text_of(input, name));
    texts.find(|text| !text.is_empty())
}

/// The first of the arguments that is a string; "-" names none.
fn text_argument<'a>(input: &'a Data<'_>, names: &str) -> Option<Text<'a>> {
    if names == "-" {
        return None;
    }
    names.split('|').find_map(|name| text_of(input, name))
}

fn text_of<'a>(input: &'a Data<'_>, name: &str) -> Option<Text<'a>> {
    match input {
        Data::Wire(value) => value.text_of(name),
        other => Some(Text::from(other.get(name)?.text()?.into_string())),
    }
}

fn paths<'a>(input: &'a Data<'_>, key: &str, found: &mut Vec<Location<'a>>) {
    if let Some(path) = text_of(input, key) {
        if !path.is_empty() {
            found.push(Location { path, line: None });
        }
        return;
    }
    let Some(list) = input.get(key) else { return };
    for item in list.items() {
        if let Some(path) = item.text().filter(|path| !path.is_empty()) {
            found.push(Location {
                path: path.into_string().into(),
                line: None,
            });
        }
    }
}

fn diffs<'a>(spec: &Diff, input: &'a Data<'_>, found: &mut Vec<Item<'a>>) {
    let Some(path) = argument(input, spec.path) else {
        return;
    };
    let Some((list, new_names)) = spec.new.split_once("[].") else {
        if let Some(new) = text_argument(input, spec.new) {
            let old = text_argument(input, spec.old);
            found.push(Item::Diff { path, old, new });
        }
        return;
    };
    let old_names = spec.old.split_once("[].").map_or("-", |(_, names)| names);
    let Some(edits) = input.get(list) else { return };
    let edits = match edits.is_map() {
        true => vec![edits], // kimi: one edit stands without a list
        false => edits.items(),
    };
    for edit in edits {
        let own = |text: Text<'_>| Text::from(text.into_string());
        if let Some(new) = text_argument(&edit, new_names) {
            found.push(Item::Diff {
                path: path.clone(),
                old: text_argument(&edit, old_names).map(own),
                new: own(new),
            });
        }
    }
}

// -------------------------------------------------------------------- plans

/// A plan entry in the one shape all dialects share. Unknown status: pending; unknown or missing priority: medium (the
/// shape demands one).
pub fn plan_entry<'a>(
    content: Text<'a>,
    status: Option<&str>,
    priority: Option<&str>,
) -> PlanEntry<'a> {
    let known = status.map(|status| status.to_lowercase().replace(['-', ' '], "_"));
    PlanEntry {
        content,
        status: match known.as_deref() {
            Some("in_progress" | "inprogress" | "running" | "active") => "in_progress".into(),
            Some("completed" | "complete" | "done" | "cancelled" | "skipped") => "completed".into(),
            _ => "pending".into(),
        },
        priority: match priority {
            Some("high") => "high".into(),
            Some("low") => "low".into(),
            _ => "medium".into(),
        },
    }
}

/// The plan in a todo tool's list of objects; None if it is no list.
pub fn plan_of<'a>(
    items: Option<Value<'a>>,
    content_key: &str,
    status_key: &str,
) -> Option<Vec<PlanEntry<'a>>> {
    let items = items.filter(Value::is_array)?;
    let entry = |item: Value<'a>| {
        let content = item.text_of(content_key)?;
        let status = item.text_of(status_key);
        let priority = item.text_of("priority");
        Some(plan_entry(content, status.as_deref(), priority.as_deref()))
    };
    Some(items.items().filter_map(entry).collect())
}

// -------------------------------------------------------------------- unified diffs

/// A hunk of a unified diff.
#[derive(Debug, PartialEq)]
pub struct Hunk {
    pub path: String,
    /// Of the new text, 1-based as printed.
    pub line: i64,
    /// None: a new file.
    pub old: Option<String>,
    pub new: String,
}

impl Hunk {
    /// As content of a call.
    pub fn item(&self) -> Item<'_> {
        Item::Diff {
            path: self.path.as_str().into(),
            old: self.old.as_deref().map(Text::from),
            new: self.new.as_str().into(),
        }
    }

    /// Where the file was changed.
    pub fn location(&self) -> Location<'_> {
        Location {
            path: self.path.as_str().into(),
            line: (self.line > 0).then_some(self.line),
        }
    }
}

const NO_FILE: &str = "/dev/null";

/// The hunks of a unified diff, of one file or of several: for each its old and its new text.
pub fn hunks(patch: &str) -> Vec<Hunk> {
    let mut found = Vec::new();
    let lines: Vec<&str> = patch.split('\n').collect();
    let (mut before, mut after) = ("", "");
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        if let Some(path) = line.strip_prefix("--- ") {
            before = diff_path(path);
        } else if let Some(path) = line.strip_prefix("+++ ") {
            after = diff_path(path);
        } else if line.starts_with("@@ -")
            && let Some((old_lines, start, new_lines)) = hunk_counts(line)
        {
            let (old, new, end) = hunk_texts(&lines, at, old_lines, new_lines);
            at = end;
            let path = if after == NO_FILE { before } else { after };
            let prefixed = before.starts_with("a/") && after.starts_with("b/");
            found.push(Hunk {
                path: if prefixed { &path[2..] } else { path }.to_owned(),
                line: start,
                old: (before != NO_FILE).then_some(old),
                new,
            });
        }
    }
    found
}

fn diff_path(rest: &str) -> &str {
    let path = rest.split('\t').next().unwrap_or(rest);
    path.trim_end_matches('\r')
}

/// Old count, new start and new count of `@@ -1,2 +1,3 @@`; a count left out is 1.
fn hunk_counts(header: &str) -> Option<(i64, i64, i64)> {
    let mut ranges = header.split(' ').skip(1);
    let old = ranges.next()?.strip_prefix('-')?;
    let new = ranges.next()?.strip_prefix('+')?;
    let number = |digits: &str| -> Option<i64> {
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && digits.len() < 10;
        if plain { digits.parse().ok() } else { None }
    };
    let range = |text: &str| -> Option<(i64, i64)> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((number(start)?, number(count)?))
    };
    let ((_, old_count), (start, new_count)) = (range(old)?, range(new)?);
    Some((old_count, start, new_count))
}

/// The texts of a hunk whose lines begin at `at`, and where they end.
fn hunk_texts(
    lines: &[&str],
    mut at: usize,
    mut old_left: i64,
    mut new_left: i64,
) -> (String, String, usize) {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    let (mut in_old, mut in_new) = (true, true); // the last line, which a "no newline" remark is about
    while let Some(line) = lines.get(at) {
        let mut rest = line.chars();
        let mark = rest.next().unwrap_or(' ');
        if mark == '\\' {
            for (side, told) in [(&mut old, in_old), (&mut new, in_new)] {
                if let Some(last) = side.last_mut().filter(|_| told) {
                    String::pop(last);
                }
            }
            at += 1;
            continue;
        }
        if old_left <= 0 && new_left <= 0 {
            break;
        }
        (in_old, in_new) = match mark {
            '-' => (true, false),
            '+' => (false, true),
            ' ' => (true, true),
            _ => break,
        };
        old_left -= i64::from(in_old);
        new_left -= i64::from(in_new);
        for (side, told) in [(&mut old, in_old), (&mut new, in_new)] {
            if told {
                side.push(format!("{}\n", rest.as_str()));
            }
        }
        at += 1;
    }
    (old.concat(), new.concat(), at)
}
