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
            Some("in_progress" | "inprogress" | "running" | "active") => "in_progress",
            Some("completed" | "complete" | "done" | "cancelled" | "skipped") => "completed",
            _ => "pending",
        },
        priority: match priority {
            Some("high") => "high",
            Some("low") => "low",
            _ => "medium",
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
