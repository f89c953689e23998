//! Items of the model API as Codex logs them: messages, reasoning, calls and their outputs.
//!
//! The TypeScript CLI prints them bare, and a rollout holds them (bare up to 0.20, later as `response_item`). Outputs of
//! calls have no flag: the exit code stands in a JSON wrapper (up to 0.64) or in a header above the text (0.98 and
//! later).

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::codex_shapes::{self as shapes, Item, What};
use super::{Outcome, Sign, filled, rule};
use crate::data::{Data, map};
use crate::emit::{Call, Emitter, Update};
use crate::event::{Item as Content, Kind, Location, Stamp};
use crate::json::{Tape, Text, Value};
use crate::number::count;
use crate::patch;
use crate::tool;

const IGNORED: &[(&str, &str)] = &[
    ("ghost_snapshot", "snapshot"),
    ("additional_tools", "definitions of tools"),
    ("agent_message", "message between agents"),
    ("compaction", "compaction item"),
    ("compaction_summary", "compaction item"),
    ("context_compaction", "compaction item"),
    ("compaction_trigger", "compaction item"),
    ("configuration_update", "settings"),
    ("other", "other item"),
];
/// How user messages begin that the harness writes.
const INJECTED: &[&str] = &[
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<permissions",
    "<skill>",
    "<skills_instructions>",
    "<user_shell_command>",
    "<user_action>",
    "<hook_prompt ",
    "<goal_context>",
    "<codex_internal_context",
    "<extension_context>",
    "<external_",
    "<model_switch>",
    "<collaboration_mode>",
    "# AGENTS.md instructions for ",
    "Warning: The maximum number of unified exec processes",
    "Warning: apply_patch was requested via ",
    "Warning: Your account was flagged for ",
    "[left out: ", // what stands in recordings for such texts
];
/// Tools whose output always has the header or the wrapper if they ran at all: without it they were refused.
const WITH_HEADER: [&str; 5] = [
    "shell",
    "shell_command",
    "exec_command",
    "write_stdin",
    "apply_patch",
];
/// Tools of the harness that answer with a JSON object if they did what was asked.
const AGENT_TOOLS: [&str; 8] = [
    "spawn_agent",
    "send_input",
    "send_message",
    "wait",
    "wait_agent",
    "close_agent",
    "resume_agent",
    "list_agents",
];
/// Tools of the harness that answer with JSON, as MCP servers do, or with an error in plain text.
const JSON_TOOLS: [&str; 4] = [
    "list_mcp_resources",
    "list_mcp_resource_templates",
    "read_mcp_resource",
    "request_user_input",
];
/// The text by which a tool of the harness says that it did what was asked.
const DONE: [(&str, &str); 2] = [
    ("update_plan", "Plan updated"),
    ("view_image", "attached local image path"),
];
/// How the harness begins to tell that a call never ran, or not to its end.
const NOT_DONE: [&str; 5] = [
    "unsupported call: ",
    "unsupported custom tool call: ",
    "failed to parse function arguments: ",
    "unable to locate image at ",
    "aborted by user after ",
];
/// How the harness begins to tell, in the place of an MCP server's answer, that there was none.
const NO_ANSWER: [&str; 3] = [
    "tool call error: tool call failed for `",
    "user rejected MCP tool call",
    "user cancelled MCP tool call",
];
/// Tools that answer with the header of a JavaScript cell.
const CELLS: [&str; 2] = ["exec", "wait"];
/// How many texts may wait for their twin.
const TWINS: usize = 32;

fn is_call(kind: &str) -> bool {
    matches!(
        kind,
        "function_call" | "custom_tool_call" | "local_shell_call" | "tool_search_call"
    )
}

fn is_output(kind: &str) -> bool {
    matches!(
        kind,
        "function_call_output" | "custom_tool_call_output" | "tool_search_output"
    )
}

/// Whether this is the type of an item of the model API that a bare line may hold.
pub(super) fn is_response(kind: &str) -> bool {
    is_call(kind) || is_output(kind) || matches!(kind, "message" | "reasoning" | "web_search_call")
}

/// A bare item of the model API: the TypeScript CLI prints them, and rollouts of 0.20 hold them.
pub(super) fn response_sign(record: Value<'_>, weight: i32) -> Option<Sign> {
    let kind = record.text_of("type").filter(|kind| is_response(kind))?;
    let call_id = record.text_of("call_id").is_some();
    match &*kind {
        "message" => {
            record.text_of("role")?;
            let content = record.get("content").filter(Value::is_array)?;
            let known = |part: Value<'_>| {
                matches!(
                    part.text_of("type").as_deref(),
                    Some("input_text" | "output_text" | "input_image" | "refusal")
                )
            };
            let all = content.items().all(known);
            all.then(|| Sign::new(weight, "a message of input_text or output_text"))?
        }
        "reasoning" => {
            record.get("summary").filter(Value::is_array)?;
            Sign::new(weight, "a reasoning item with a summary")
        }
        "web_search_call" => {
            record.get("action").filter(Value::is_object)?;
            Sign::new(weight, "a web_search_call with an action")
        }
        call if call_id => Sign::new(weight, format!("a {call} with call_id")),
        _ => None,
    }
}

/// Which of a rollout's two families tells a text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Item,
    Event,
}

/// Items of one conversation. A rollout tells each text twice, as item and as event, in either order: `say` shows it
/// once, and a text that really comes again shows again.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Responses {
    /// Name of the tool by call id, until its output.
    names: HashMap<String, String>,
    /// Ids of calls that an event ended without a word, until their output.
    silent: Vec<String>,
    /// The cell or process that a call waits for, by call id, until its output.
    awaited: HashMap<String, String>,
    /// Cells and processes that calls left running, and the calls' ids.
    running: Vec<(String, String)>,
    searches: u64,
    /// What events said that the provider looked for, until the item that repeats it.
    searched: Vec<String>,
    /// Texts without their twin of the other family: of items, of events.
    waiting: [Vec<String>; 2],
    /// Characters of the last thing said, if it was an answer that no event told.
    pub alone: usize,
    /// The agent said something in this turn.
    pub said: bool,
}

impl Responses {
    // ---------------------------------------------------------------- texts

    /// Shows a text unless the other family has shown it.
    pub fn say(
        &mut self,
        kind: Kind,
        text: Text<'_>,
        stamp: &Stamp<'_>,
        family: Family,
        out: &mut Emitter<'_>,
    ) -> bool {
        let mark = format!("{} {}", kind.name(), &*text);
        let [items, events] = &mut self.waiting;
        let (mine, other) = match family {
            Family::Item => (items, events),
            Family::Event => (events, items),
        };
        if let Some(at) = other.iter().position(|text| *text == mark) {
            other.remove(at);
            self.alone = 0;
            return false;
        }
        keep(mine, mark);
        let alone = kind == Kind::Message && family == Family::Item;
        self.alone = if alone { text.chars().count() } else { 0 };
        self.said |= kind == Kind::Message;
        out.commit(None);
        out.whole(kind, text, stamp);
        true
    }

    /// Shows the texts that are not empty; says whether one was shown, and whether there was one at all.
    pub fn say_all<'t>(
        &mut self,
        kind: Kind,
        texts: impl IntoIterator<Item = Text<'t>>,
        stamp: &Stamp<'_>,
        family: Family,
        out: &mut Emitter<'_>,
    ) -> (bool, bool) {
        let (mut shown, mut any) = (false, false);
        for text in texts.into_iter().filter(|text| !text.is_empty()) {
            shown |= self.say(kind, text, stamp, family, out);
            any = true;
        }
        (shown, any)
    }

    /// Something else than a text: what was said before stands.
    pub fn acted(&mut self, out: &mut Emitter<'_>) {
        self.alone = 0;
        out.commit(None);
    }

    /// A turn begins.
    pub fn start(&mut self) {
        self.silent.clear();
        self.searched.clear();
        self.waiting = Default::default();
        self.alone = 0;
        self.said = false;
    }

    // ---------------------------------------------------------------- items

    pub fn map<'a>(
        &mut self,
        item: Value<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(kind) = item.text_of("type") else {
            return Outcome::Unknown;
        };
        match &*kind {
            "message" => self.message(item, stamp, out),
            "reasoning" => {
                stamp.message_id = item.text_of("id");
                let texts = shapes::texts_of(item.get("summary"));
                match self.say_all(Kind::Thought, texts, stamp, Family::Item, out) {
                    (true, _) => Outcome::Mapped,
                    (false, true) => Outcome::Ignored("reasoning again"),
                    (false, false) => Outcome::Ignored("reasoning without summary"),
                }
            }
            call if is_call(call) => self.call(call, item, stamp, out),
            output if is_output(output) => self.output(output, item, stamp, out),
            "web_search_call" => self.search(item, stamp, out),
            "image_generation_call" => self.picture(item, stamp, out),
            other => rule(IGNORED, other),
        }
    }

    fn message<'a>(
        &mut self,
        item: Value<'a>,
        stamp: &mut Stamp<'a>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        stamp.message_id = item.text_of("id");
        let texts = shapes::texts_of(item.get("content"));
        let role = item.text_of("role");
        if role.as_deref() == Some("assistant") {
            stamp.extra = phase_of(item);
            return match self.say_all(Kind::Message, texts, stamp, Family::Item, out) {
                (true, _) => Outcome::Mapped,
                (false, true) => Outcome::Ignored("message again"),
                (false, false) => Outcome::Ignored("empty text"),
            };
        }
        if !is_prompt(item) {
            return Outcome::Ignored(match role.as_deref() {
                Some("user") => "user message",
                Some("developer") => "developer message",
                Some("system") => "system message",
                _ => "message of another role",
            });
        }
        let mut shown = false;
        let parts = item.get("content");
        for part in parts.into_iter().flat_map(|parts| parts.items()) {
            if let Some(url) = part.text_of("image_url") {
                out.image(Kind::User, &shapes::image_of(url), stamp);
                shown = true;
            }
        }
        shown |= self.say_all(Kind::User, texts, stamp, Family::Item, out).0;
        if shown {
            Outcome::Mapped
        } else {
            Outcome::Ignored("prompt again")
        }
    }

    fn call(
        &mut self,
        kind: &str,
        item: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let id = filled(item.text_of("call_id")).or_else(|| item.text_of("id"));
        let Some(id) = id else {
            return Outcome::Unknown;
        };
        self.acted(out);
        if out.knows(&id) && !self.names.contains_key(&*id) {
            return Outcome::Ignored("call again"); // an event has told it, or it was copied
        }
        let name = match kind {
            "local_shell_call" => Some("local_shell".into()),
            "tool_search_call" => Some("tool_search".into()),
            _ => item.text_of("name"),
        };
        let space = item.text_of("namespace");
        let plain = name.as_deref().unwrap_or("");
        // the name, with its namespace if that is an MCP server; others are the harness's own: clock, web, image_gen ...
        let server = space.as_deref().filter(|space| space.starts_with("mcp__"));
        let path = match server {
            Some(server) => format!("{server}__{plain}"),
            None => plain.to_owned(),
        };
        let waiting = WAITING.iter().find(|(tool, _)| *tool == path);
        let awaited_in = |input: Value<'_>| waiting.and_then(|(_, key)| awaited_by(key, input));
        self.names.insert(id.to_string(), path.clone());
        let (key, mut awaited) = (id.to_string(), None);
        let plan = plain == "update_plan";
        let (mut call, entries) = match kind {
            "custom_tool_call" => {
                let input = item.get("input");
                let patch = input.and_then(|input| input.text());
                let patch = patch.filter(|_| plain == "apply_patch");
                let input = match input {
                    Some(input) => map([("input", input.into())]),
                    None => Data::Null,
                };
                (described(id, name, input, None, patch), None)
            }
            "function_call" => {
                let arguments = item.get("arguments");
                let text = arguments.and_then(|arguments| arguments.text());
                let mut tape = Tape::new();
                let text = text.filter(|text| !text.is_lossy());
                let parsed = text.as_ref().map(|text| tape.parse(text.as_bytes()));
                match parsed {
                    Some(Ok(doc)) => {
                        let root = doc.root();
                        let raw = Data::Raw(Cow::Owned(root.raw().to_vec()));
                        let entries = plan.then(|| plan_of(root)).flatten();
                        awaited = awaited_in(root);
                        (of_arguments(id, name, raw, root), entries)
                    }
                    // the model broke them
                    Some(Err(_)) => (Call::new(id, name, arguments), None),
                    None => match arguments {
                        Some(value) => {
                            awaited = awaited_in(value);
                            let entries = plan.then(|| plan_of(value)).flatten();
                            (of_arguments(id, name, value.into(), value), entries)
                        }
                        None => (Call::new(id, name, Data::Null), None),
                    },
                }
            }
            _ => {
                let key = if kind == "local_shell_call" {
                    "action"
                } else {
                    "arguments"
                };
                match item.get(key) {
                    Some(value) => (of_arguments(id, name, value.into(), value), None),
                    None => (Call::new(id, name, Data::Null), None),
                }
            }
        };
        if let Some(awaited) = awaited {
            self.awaited.insert(key, awaited);
        }
        if let Some(space) = space.filter(|space| space.starts_with("mcp__")) {
            let server = space.rewrite(|space| {
                let server = &space["mcp__".len()..];
                server.strip_suffix("__").unwrap_or(server).to_owned() // 0.125: mcp__server__
            });
            call.title = shapes::mcp_title(Some(server), call.name.clone());
        }
        out.call(call, stamp);
        if let Some(entries) = entries {
            out.plan(&entries, stamp);
        }
        Outcome::Mapped
    }

    fn output(
        &mut self,
        kind: &str,
        item: Value<'_>,
        stamp: &Stamp<'_>,
        out: &mut Emitter<'_>,
    ) -> Outcome {
        let Some(id) = item.text_of("call_id") else {
            // the app tells a thread so what another thread wants of it
            return match item.text_of("name") {
                Some(_) => Outcome::Ignored("output without a call"),
                None => Outcome::Unknown,
            };
        };
        self.acted(out);
        let name = self.names.remove(&*id).unwrap_or_default();
        let awaited = self.awaited.remove(&*id);
        let mut ended = None;
        let update = if kind == "tool_search_output" {
            let status = shapes::status_of(item.text_of("status").as_deref());
            Update {
                done: Some(true),
                raw_output: Some(map([("tools", item.get("tools").into())])),
                ..Update::new(id, status)
            }
        } else {
            let output = read_output(&name, item.get("output"));
            let silent = self.silent.iter().position(|other| *other == *id);
            if let Some(at) = silent {
                self.silent.remove(at);
                if !output.content.is_empty() {
                    let update = Update {
                        done: Some(false),
                        content: output.content,
                        raw_output: output.raw,
                        again: true,
                        ..Update::new(id, None)
                    };
                    out.update(update, stamp);
                    return Outcome::Mapped;
                }
            }
            if output.running
                && let Some(left) = left_running(item.get("output"))
            {
                keep(&mut self.running, (left, id.to_string()));
            }
            ended = (!output.running).then_some((output.status, output.exit_code));
            let mut update = Update {
                done: Some(!output.running),
                content: output.content,
                raw_output: output.raw,
                ..Update::new(id, output.status)
            };
            update.facts.exit_code = output.exit_code;
            update
        };
        let shown = out.update(update, stamp);
        if let (Some(awaited), Some((Some(status), exit_code))) = (awaited, ended) {
            for (_, earlier) in self.running.extract_if(.., |(left, _)| *left == awaited) {
                let mut update = Update {
                    done: Some(true),
                    ..Update::new(Text::from(earlier), Some(status))
                };
                update.facts.exit_code = exit_code;
                out.update(update, stamp);
            }
        }
        match shown {
            true => Outcome::Mapped,
            false => Outcome::Ignored("output again"),
        }
    }

    /// An event told a search, which an item may repeat.
    pub fn searched(&mut self, event: Value<'_>) {
        keep(&mut self.searched, search_mark(event));
    }

    /// An event ended this call without a word: its output may still come.
    pub fn ended_silently(&mut self, id: String) {
        keep(&mut self.silent, id);
    }

    /// A search that the provider ran: one item says all. Without an id (0.64 to 0.129) it is counted, unless an event
    /// has told it (0.122 to 0.129), which has one.
    fn search(&mut self, item: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        self.acted(out);
        let id = filled(item.text_of("id"));
        let mark = search_mark(item);
        if id.is_none()
            && let Some(at) = self.searched.iter().position(|told| *told == mark)
        {
            self.searched.remove(at);
            return Outcome::Ignored("call again");
        }
        self.searches += 1;
        let id = id.unwrap_or_else(|| format!("web_search:{}", self.searches).into());
        if out.knows(&id) {
            return Outcome::Ignored("call again");
        }
        let mut search = Item::new(item);
        search.query = item
            .get("action")
            .and_then(|action| action.text_of("query"));
        let name = "web_search".into();
        shapes::announce(out, What::Search, name, &search, id.clone(), stamp);
        shapes::settle(out, What::Search, &search, id, stamp, false);
        Outcome::Mapped
    }

    /// An image that the provider made: one item says all, and an event may say it again.
    fn picture(&mut self, item: Value<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> Outcome {
        let Some(id) = item.text_of("id") else {
            return Outcome::Unknown;
        };
        self.acted(out);
        if out.knows(&id) {
            return Outcome::Ignored("call again");
        }
        let (what, picture) = (What::Picture, Item::new(item));
        let name = "image_generation".into();
        shapes::announce(out, what, name, &picture, id.clone(), stamp);
        shapes::settle(out, what, &picture, id, stamp, false);
        Outcome::Mapped
    }
}

/// What the provider looked for, as the item and the event of a search both say it.
fn search_mark(record: Value<'_>) -> String {
    let Some(action) = record.get("action").filter(Value::is_object) else {
        return String::new();
    };
    let part = |key| {
        action
            .text_of(key)
            .map_or_else(String::new, Text::into_string)
    };
    ["type", "query", "url", "pattern"].map(part).join("\n")
}

/// The phase of a message (commentary, final_answer), as an event's extra.
pub(super) fn phase_of(item: Value<'_>) -> Vec<(Text<'_>, Data<'_>)> {
    let phase = item.text_of("phase");
    phase
        .map(|phase| ("phase".into(), phase.into()))
        .into_iter()
        .collect()
}

/// True for a user message that a person wrote. 0.171 says so; before, the text tells, and a message without any holds
/// an image that a tool attached.
pub(super) fn is_prompt(item: Value<'_>) -> bool {
    if item.text_of("type").as_deref() != Some("message")
        || item.text_of("role").as_deref() != Some("user")
    {
        return false;
    }
    let facts = [
        "internal_chat_message_metadata_passthrough",
        "content_item_kinds",
    ];
    if let Some(kinds) = item.path(&facts).filter(Value::is_array)
        && !kinds.is_empty()
    {
        let kinds = shapes::strings(Some(kinds));
        return kinds.iter().any(|kind| kind.starts_with("user."));
    }
    let texts = shapes::texts_of(item.get("content"));
    let first = texts.first();
    first.is_some_and(|text| !INJECTED.iter().any(|head| text.starts_with(head)))
}

// -------------------------------------------------------------------- calls

fn plan_of(arguments: Value<'_>) -> Option<Vec<crate::event::PlanEntry<'static>>> {
    let entries = tool::plan_of(arguments.get("plan"), "step", "status")?;
    let own = entries.into_iter().map(|entry| crate::event::PlanEntry {
        content: shapes::own(&entry.content),
        status: entry.status,
        priority: entry.priority,
    });
    Some(own.collect())
}

/// A call with its arguments, which `value` lets read.
fn of_arguments<'a>(
    id: Text<'a>,
    name: Option<Text<'a>>,
    input: Data<'a>,
    value: Value<'_>,
) -> Call<'a> {
    let command = value.get("command");
    let mut patch = None;
    if name.as_deref() == Some("apply_patch") {
        patch = value.text_of("input");
    }
    if let Some(list) = command.filter(|command| command.is_array() && command.len() == 2)
        && let Some(first) = list.items().next()
        && first.text().as_deref() == Some("apply_patch")
    {
        patch = list.items().nth(1).and_then(|text| text.text());
    }
    described(id, name, input, command, patch)
}

fn described<'a>(
    id: Text<'a>,
    name: Option<Text<'a>>,
    input: Data<'a>,
    command: Option<Value<'_>>,
    patch: Option<Text<'_>>,
) -> Call<'a> {
    let plain = name.as_deref() != Some("apply_patch");
    let mut call = Call::new(id, name, input);
    if let Some(patch) = patch {
        let (content, locations) = patch::blocks_of_patch(&patch);
        call.kind = Some("edit");
        call.title = Some(match &locations[..] {
            [Location { path, .. }] => format!("Edit {}", &**path).into(),
            _ => "Apply patch".into(),
        });
        call.content = Some(content);
        call.locations = Some(locations);
    } else if plain {
        call.title = shapes::command_title(command);
    }
    call
}

// -------------------------------------------------------------------- outputs

/// Tools that wait for what another call left running, and the argument that names it.
const WAITING: [(&str, &str); 2] = [("wait", "cell_id"), ("write_stdin", "session_id")];
/// How the line of an output begins that names what goes on.
const GOES_ON: [(&str, &str); 2] = [
    ("Script running with cell ID ", "cell_id"),
    ("Process running with session ID ", "session_id"),
];

/// The cell or process that a call waits for.
fn awaited_by(key: &str, input: Value<'_>) -> Option<String> {
    let value = input.get(key)?;
    match count(Some(value)) {
        Some(number) => Some(format!("{key} {number}")),
        None => Some(format!("{key} {}", &*value.text()?)),
    }
}

/// The cell or process that goes on, by the header of an output.
fn left_running(output: Option<Value<'_>>) -> Option<String> {
    let text = match output?.text() {
        Some(text) => text,
        None => shapes::texts_of(output).into_iter().next()?,
    };
    let header = text.split('\n').take_while(|line| *line != "Output:");
    header
        .flat_map(|line| GOES_ON.map(|(head, key)| (line.strip_prefix(head), key)))
        .find_map(|(id, key)| Some(format!("{key} {}", id?)))
}

/// What the output of a call says.
#[derive(Default)]
struct Output<'a> {
    content: Vec<Content<'a>>,
    status: Option<&'static str>,
    /// The call goes on.
    running: bool,
    exit_code: Option<i64>,
    /// The header, or what the wrapper says beside the output.
    raw: Option<Data<'a>>,
}

struct Header {
    /// Its length in bytes.
    length: usize,
    exit_code: Option<i64>,
    running: bool,
}

const HEADER_LINES: [&str; 4] = [
    "Chunk ID: ",
    "Wall time",
    "Original token count: ",
    "Total output lines: ",
];

/// The lines above `Output:`, if the text begins with them.
fn read_header(text: &str) -> Option<Header> {
    let (mut exit_code, mut running, mut at) = (None, false, 0);
    loop {
        let end = text[at..].find('\n').map(|end| at + end);
        let line = &text[at..end.unwrap_or(text.len())];
        if line == "Output:" {
            let length = end.map_or(text.len(), |end| end + 1);
            return (at > 0).then_some(Header {
                length,
                exit_code,
                running,
            });
        }
        let code = line
            .strip_prefix("Process exited with code ")
            .or_else(|| line.strip_prefix("Exit code: "));
        if let Some(code) = code {
            exit_code = integer(code);
        } else if line.starts_with("Process running with ") {
            running = true;
        } else if !HEADER_LINES.iter().any(|head| line.starts_with(head)) {
            return None;
        }
        at = end? + 1;
    }
}

/// Adds to a list of things that wait, of which the oldest are forgotten.
fn keep<T>(waiting: &mut Vec<T>, thing: T) {
    if waiting.len() == TWINS {
        waiting.remove(0);
    }
    waiting.push(thing);
}

/// The header of a JavaScript cell.
struct Cell {
    /// Its length in bytes.
    length: usize,
    status: Option<&'static str>,
}

impl Cell {
    fn is_running(&self) -> bool {
        self.status == Some("in_progress")
    }
}

/// The lines above `Output:` of a JavaScript cell, if the text begins with them. Without any output they are all of it,
/// and then they stand as a text, not as a part.
fn read_cell(text: &str) -> Option<Cell> {
    let (line, mut rest) = text.split_once('\n')?;
    let status = match line {
        "Script terminated" => None,
        "Script failed" => Some("failed"),
        "Script completed" => Some("completed"),
        _ if line.starts_with("Script running with cell ID ") => Some("in_progress"),
        _ => return None,
    };
    if rest.starts_with("Wall time ") {
        rest = rest.split_once('\n')?.1;
    }
    let body = rest.strip_prefix("Output:")?;
    let body = if body.is_empty() {
        body
    } else {
        body.strip_prefix('\n')?
    };
    let length = text.len() - body.len();
    Some(Cell { length, status })
}

fn integer(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => shapes::number(digits).map(|number| -number),
        None => shapes::number(text),
    }
}

/// Output of the call to the tool `name` (with its namespace if that is an MCP server).
fn read_output<'a>(name: &str, output: Option<Value<'a>>) -> Output<'a> {
    let Some(output) = output else {
        return Output::default();
    };
    let tool_name = name.rsplit_once("__").map_or(name, |(_, tool)| tool);
    let own_space = ["functions__", "collaboration__", "multi_agent_"];
    let mcp = name.contains("__") && !own_space.iter().any(|space| name.starts_with(space));
    let mcp = mcp || JSON_TOOLS.contains(&tool_name);
    if output.is_array() {
        let mut found = parts_output(tool_name, output);
        if mcp && is_no_answer(&found.content) {
            found.status = Some("failed");
        }
        return found;
    }
    if output.is_object() {
        // up to 0.50 in memory: {"content", "success"}
        let success = output.get("success").and_then(|success| success.as_bool());
        return Output {
            content: content(filled(output.text_of("content"))),
            status: success.map(|success| if success { "completed" } else { "failed" }),
            ..Output::default()
        };
    }
    let Some(text) = output.text() else {
        return Output::default();
    };
    if let Some(cell) = CELLS
        .contains(&tool_name)
        .then(|| read_cell(&text))
        .flatten()
    {
        return Output {
            status: cell.status,
            running: cell.is_running(),
            raw: Some(piece(&text, 0, cell.length).into()),
            content: content(filled(Some(piece(&text, cell.length, text.len())))),
            exit_code: None,
        };
    }
    let (mut start, mut exit_code) = (0, None);
    while let Some(header) = read_header(&text[start..]) {
        // 0.142 prints one above the other
        start += header.length;
        if header.running {
            return Output {
                status: Some("in_progress"),
                running: true,
                raw: Some(piece(&text, 0, start).into()),
                content: content(filled(Some(piece(&text, start, text.len())))),
                exit_code: None,
            };
        }
        exit_code = exit_code.or(header.exit_code);
    }
    let body = piece(&text, start, text.len());
    let raw = (start > 0).then(|| piece(&text, 0, start).into());
    let of_code = |code: i64| if code == 0 { "completed" } else { "failed" };
    let mut tape = Tape::new();
    let json = body.starts_with(['{', '[']) && !text.is_lossy();
    let value = json.then(|| tape.parse(body.as_bytes()).ok()).flatten();
    let value = value.map(|doc| doc.root());
    let wrapper = value.and_then(|value| {
        let metadata = value.get("metadata").filter(Value::is_object)?;
        Some((metadata, value.text_of("output")?))
    });
    if let Some((metadata, inner)) = wrapper {
        let exit_code = count(metadata.get("exit_code"));
        let metadata = Data::Raw(Cow::Owned(metadata.raw().to_vec()));
        return Output {
            content: content(filled(Some(shapes::own(&inner)))),
            status: Some(exit_code.map_or("failed", of_code)),
            exit_code,
            raw: Some(map([("metadata", metadata)])),
            running: false,
        };
    }
    let mut status = None;
    if let Some(code) = exit_code {
        status = Some(of_code(code));
    } else if mcp {
        // only an answer of the server is JSON, which may be cut in the middle, or has a header; the harness tells its
        // own errors in plain text
        let answered = start > 0 || body.starts_with(['{', '[']);
        status = Some(if answered { "completed" } else { "failed" });
        let answer = value.filter(|value| value.is_object() || value.is_array());
        let blocks = shapes::parts_content(answer);
        if is_no_answer(&blocks) {
            status = Some("failed");
        }
        if !blocks.is_empty() {
            return Output {
                content: blocks.iter().map(own_content).collect(),
                status,
                raw,
                ..Output::default()
            };
        }
    } else if (start == 0 && WITH_HEADER.contains(&tool_name))
        || NOT_DONE.iter().any(|begin| body.starts_with(begin))
    {
        status = Some("failed");
    } else if (AGENT_TOOLS.contains(&tool_name) && value.is_some_and(|value| value.is_object()))
        || DONE.contains(&(tool_name, &*body))
    {
        status = Some("completed");
    }
    Output {
        content: content(filled(Some(body))),
        status,
        running: false,
        exit_code,
        raw,
    }
}

/// Whether parts are no MCP server's, but the harness's error in the shape of an answer (0.125 on).
fn is_no_answer(content: &[Content<'_>]) -> bool {
    let [Content::Text(text)] = content else {
        return false;
    };
    NO_ANSWER.iter().any(|begin| text.starts_with(begin))
}

/// Output as a list of parts; the first may be a header of the harness.
fn parts_output<'a>(name: &str, parts: Value<'a>) -> Output<'a> {
    let mut output = Output {
        content: shapes::parts_content(Some(parts)),
        status: Some("completed"),
        ..Output::default()
    };
    let Some(Content::Text(first)) = output.content.first().cloned() else {
        return output;
    };
    if let Some(cell) = CELLS.contains(&name).then(|| read_cell(&first)).flatten() {
        output.status = cell.status;
        output.running = cell.is_running();
        output.raw = Some(piece(&first, 0, cell.length).into());
        if cell.length < first.len() {
            output.content[0] = Content::Text(piece(&first, cell.length, first.len()));
        } else {
            output.content.remove(0);
        }
        return output;
    }
    if name == "exec" {
        output.status = None;
        return output;
    }
    if read_header(&first).is_none_or(|header| header.length != first.len()) {
        return output;
    }
    output.content.remove(0);
    output.raw = Some(first.into());
    output
}

fn content(text: Option<Text<'_>>) -> Vec<Content<'_>> {
    crate::event::text_content(text)
}

/// Part of a text, as lossy as the whole.
fn piece<'a>(text: &Text<'a>, from: usize, to: usize) -> Text<'a> {
    if from == 0 && to == text.len() {
        return text.clone();
    }
    text.rewrite(|text| text[from..to].to_owned())
}

fn own_content(item: &Content<'_>) -> Content<'static> {
    match item {
        Content::Text(text) => Content::Text(shapes::own(text)),
        Content::Image(image) => Content::Image(crate::event::Image {
            data: shapes::own(&image.data),
            mime: shapes::own(&image.mime),
            uri: image.uri.as_ref().map(shapes::own),
        }),
        Content::Diff { path, old, new } => Content::Diff {
            path: shapes::own(path),
            old: old.as_ref().map(shapes::own),
            new: shapes::own(new),
        },
    }
}
