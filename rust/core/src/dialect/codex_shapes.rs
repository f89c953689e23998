//! What all surfaces of Codex print alike: items, token counts, failures.
//!
//! An item has three spellings: `command_execution` with `aggregated_output` (exec), `commandExecution` with
//! `aggregatedOutput` (app-server), `CommandExecution` (rollout). The functions here read all of them; a tool's name in
//! events is the type as it was printed.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{Outcome, filled, rule};
use crate::data::Data;
use crate::emit::{Call, Emitter, Update};
use crate::event::{Image, Item as Content, Location, Stamp, State, Tokens, iso_millis};
use crate::json::{Text, Value};
use crate::number::{Number, count, price};
use crate::patch;
use crate::tool;

/// What an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Command,
    Edit,
    Mcp,
    Agent,
    Search,
    Image,
    Dynamic,
    Picture,
    OtherTool,
    Message,
    Reasoning,
    User,
    Todo,
    Error,
    Compaction,
}

impl What {
    /// By an item's type in any spelling.
    pub fn of(name: &str) -> Option<What> {
        Some(match name {
            "command_execution" | "commandExecution" | "CommandExecution" => What::Command,
            "file_change" | "fileChange" | "FileChange" => What::Edit,
            "mcp_tool_call" | "mcpToolCall" | "McpToolCall" => What::Mcp,
            "collab_tool_call" | "collabAgentToolCall" | "CollabAgentToolCall" => What::Agent,
            "web_search" | "webSearch" | "WebSearch" => What::Search,
            "image_view" | "imageView" | "ImageView" => What::Image,
            "dynamicToolCall" | "DynamicToolCall" => What::Dynamic,
            "image_generation" | "imageGeneration" | "ImageGeneration" => What::Picture,
            "image_gen.generation" | "image_gen.image_generation" => What::Picture,
            "web.search" => What::Search,
            "sleep" | "Sleep" | "clock.sleep" => What::OtherTool,
            "agent_message" | "assistant_message" | "agentMessage" | "AgentMessage" => {
                What::Message
            }
            "reasoning" | "Reasoning" => What::Reasoning,
            "userMessage" | "UserMessage" => What::User,
            "todo_list" => What::Todo,
            "error" => What::Error,
            "contextCompaction" | "ContextCompaction" => What::Compaction,
            _ => return None,
        })
    }

    pub fn is_call(self) -> bool {
        use What::*;
        matches!(
            self,
            Command | Edit | Mcp | Agent | Search | Image | Dynamic | Picture | OtherTool
        )
    }
}

const IGNORED_ITEMS: &[(&str, &str)] = &[
    ("plan", "text of a plan"),
    ("Plan", "text of a plan"),
    ("enteredReviewMode", "review mode"),
    ("EnteredReviewMode", "review mode"),
    ("exitedReviewMode", "review mode"),
    ("ExitedReviewMode", "review mode"),
    ("hookPrompt", "prompt of a hook"),
    ("HookPrompt", "prompt of a hook"),
    ("functionCallOutput", "output of a call again"),
    ("FunctionCallOutput", "output of a call again"),
    ("subAgentActivity", "sub-agent activity"),
    ("SubAgentActivity", "sub-agent activity"),
];

/// What becomes of an item that is none of [`What`].
pub(super) fn other_item(name: &str) -> Outcome {
    rule(IGNORED_ITEMS, name)
}

/// The type of an item; for an extension's (0.149 on: `{"type": "Extension", "kind": "web.search"}`) its kind.
pub(super) fn name_of<'a>(item: Value<'a>) -> Text<'a> {
    let name = item.text_of("type").unwrap_or_default();
    let kind = (*name == *"Extension").then(|| filled(item.text_of("kind")));
    kind.flatten().unwrap_or(name)
}

/// Fields of an item that its rawOutput leaves out, because the event says them elsewhere or nobody asks.
const TOLD: &[&str] = &[
    "id",
    "call_id",
    "type",
    "item_type",
    "command",
    "aggregated_output",
    "aggregatedOutput",
    "formatted_output",
    "changes",
    "server",
    "tool",
    "arguments",
    "invocation",
    "result",
    "contentItems",
    "content_items",
    "prompt",
    "path",
    "startedAtMs",
    "completedAtMs",
    "internal_chat_message_metadata_passthrough",
];

// -------------------------------------------------------------------- items that are tool calls

/// A tool call as its item tells it, or a pair of events: what stands where in all of them.
pub(super) struct Item<'a> {
    /// The whole item or event.
    pub facts: Value<'a>,
    /// Where server, tool and arguments of an MCP call stand.
    inputs: Value<'a>,
    pub tool: Option<Text<'a>>,
    pub query: Option<Text<'a>>,
    pub status: Option<Text<'a>>,
    result: Option<Value<'a>>,
    error: Option<Value<'a>>,
    pub started: Option<Value<'a>>,
}

impl<'a> Item<'a> {
    pub fn new(facts: Value<'a>) -> Self {
        Item::with_inputs(facts, facts)
    }

    fn with_inputs(facts: Value<'a>, inputs: Value<'a>) -> Self {
        Item {
            facts,
            inputs,
            tool: inputs.text_of("tool"),
            query: facts.text_of("query"),
            status: facts.text_of("status"),
            result: facts.get("result"),
            error: facts.get("error"),
            started: either(facts, "startedAtMs", "started_at_ms"),
        }
    }

    /// A begin or end event; an end says `success` or `{"Ok": ...}` where an item has a status.
    pub fn of_event(what: Option<What>, msg: Value<'a>) -> Self {
        let invocation = msg.get("invocation").filter(Value::is_object);
        let mut item = Item::with_inputs(msg, invocation.unwrap_or(msg));
        let success = msg.get("success").and_then(|success| success.as_bool());
        if what == Some(What::Edit)
            && item.status.is_none()
            && let Some(success) = success
        {
            item.status = Some(if success { "completed" } else { "failed" }.into());
        }
        let result = item.result.filter(Value::is_object);
        if let (Some(What::Mcp), Some(result)) = (what, result) {
            item.result = result.get("Ok");
            item.error = result.get("Err");
        }
        item
    }

    /// The call's arguments, as far as they are printed.
    fn input(&self, what: What) -> Data<'a> {
        let mut found: Vec<(Text<'a>, Data<'a>)> = Vec::new();
        let (from, keys): (_, &[&'static str]) = match what {
            What::Command => (self.facts, &["command"]),
            What::Edit => (self.facts, &["changes"]),
            What::Mcp => (self.inputs, &["server", "tool", "arguments"]),
            What::Agent => (self.facts, &["prompt"]),
            What::Search => (self.facts, &[]),
            What::Image => (self.facts, &["path"]),
            _ => (self.facts, &["tool", "arguments"]),
        };
        if let (What::Agent, Some(tool)) = (what, &self.tool) {
            found.push(("tool".into(), tool.clone().into()));
        }
        if let (What::Search, Some(query)) = (what, &self.query) {
            found.push(("query".into(), query.clone().into()));
        }
        let printed = keys.iter().filter_map(|key| Some((*key, from.get(key)?)));
        found.extend(printed.map(|(key, value)| (key.into(), value.into())));
        if found.is_empty() {
            Data::Null
        } else {
            Data::Map(found)
        }
    }

    fn title(&self, what: What) -> Option<Text<'a>> {
        match what {
            What::Command => command_title(self.facts.get("command")),
            What::Edit => {
                let changes = changes_of(self.facts.get("changes"));
                match &changes[..] {
                    [] => None,
                    [change] => {
                        let verb = match &*change.kind {
                            "add" => "Create",
                            "delete" => "Delete",
                            _ => "Edit",
                        };
                        Some(format!("{verb} {}", &*change.path).into())
                    }
                    changes => Some(format!("Edit {} files", changes.len()).into()),
                }
            }
            What::Mcp => mcp_title(self.inputs.text_of("server"), self.tool.clone()),
            What::Agent => {
                let prompt = self.facts.text_of("prompt").unwrap_or_default();
                match tool::first_line(&prompt) {
                    line if line.is_empty() => self.tool.clone(),
                    line => Some(line.into()),
                }
            }
            What::Search => {
                let query = filled(self.query.clone())?;
                Some(format!("Search the web: {}", tool::first_line(&query)).into())
            }
            What::Image => Some(format!("Read {}", &*file_path(self.facts)?).into()),
            _ => self.tool.clone(),
        }
    }
}

fn file_path(facts: Value<'_>) -> Option<Text<'_>> {
    let path = facts.text_of("path")?;
    match path.strip_prefix("file://") {
        Some(_) => Some(path.rewrite(|path| path["file://".len()..].to_owned())),
        None => Some(path),
    }
}

/// A tool_call event for an item (`what` is a call).
pub(super) fn announce(
    out: &mut Emitter<'_>,
    what: What,
    name: Text<'_>,
    item: &Item<'_>,
    id: Text<'_>,
    stamp: &Stamp<'_>,
) -> bool {
    let mut call = Call {
        status: "in_progress",
        title: item.title(what),
        started_at: iso_millis(item.started),
        ..Call::new(id, Some(name), item.input(what))
    };
    if what == What::Edit {
        let (content, locations) = blocks_of_changes(changes_of(item.facts.get("changes")));
        call.content = Some(content);
        call.locations = Some(locations);
    } else if let (What::Image, Some(path)) = (what, file_path(item.facts)) {
        call.locations = Some(vec![Location { path, line: None }]);
    }
    out.call(call, stamp)
}

/// The tool_call_update event of an item that has ended.
pub(super) fn settle(
    out: &mut Emitter<'_>,
    what: What,
    item: &Item<'_>,
    id: Text<'_>,
    stamp: &Stamp<'_>,
    again: bool,
) -> bool {
    let facts = item.facts;
    // a web search has no status: it ends well; that of an image is the provider's, "generating" as a rule
    let word = item.status.as_deref();
    let mut status = match what {
        What::Picture
            if word == Some("failed") || facts.get("failure").is_some_and(|it| !it.is_null()) =>
        {
            "failed"
        }
        What::Picture => "completed",
        _ => status_of(word).unwrap_or("completed"),
    };
    let mut update = Update {
        done: Some(true),
        again,
        ..Update::new(id, None)
    };
    let mut raw = others(facts, TOLD);
    match what {
        What::Command => {
            let exit_code = count(either(facts, "exit_code", "exitCode"));
            let told = facts.first("exit_code").or_else(|| facts.first("exitCode"));
            if status == "completed" && exit_code != Some(0) && told.is_some() {
                status = "failed";
            }
            update.facts.exit_code = exit_code;
            let output = either(facts, "aggregated_output", "aggregatedOutput");
            let output = filled(output.and_then(|output| output.text()));
            update.content = match output {
                Some(output) => vec![Content::Text(output)],
                None => printed(facts),
            };
        }
        What::Edit => update.content = printed(facts),
        What::Mcp => {
            let (failed, content) = mcp_result(item.result, item.error);
            if failed {
                status = "failed";
            }
            update.content = content;
            if let Some(result) = item.result.filter(Value::is_object) {
                raw.push(("result".into(), Data::Map(others(result, &["content"]))));
            }
        }
        What::Dynamic => {
            update.content = parts_content(either(facts, "contentItems", "content_items"));
            let error = item.error.and_then(|error| error.text());
            if update.content.is_empty() {
                update.content = crate::event::text_content(filled(error));
            }
            if is(facts.get("success"), false) {
                status = "failed";
            }
        }
        What::Search => {
            // it was announced before its query was known, unless the model called an extension's
            update.title = item.title(what);
            let late = facts.text_of("type").as_deref() != Some("Extension");
            if late && item.query.as_ref().is_some_and(|query| !query.is_empty()) {
                update.facts.input = Some(item.input(what));
            }
        }
        _ => {}
    }
    update.status = Some(status);
    update.raw_output = (!raw.is_empty()).then_some(Data::Map(raw));
    update.facts.duration_ms = duration_of(facts);
    out.update(update, stamp)
}

/// Whether the end of a call says nothing of what it gave: then its output does.
pub(super) fn is_silent(what: What, item: &Item<'_>) -> bool {
    let keys = ["aggregated_output", "aggregatedOutput", "stdout", "stderr"];
    let said = |key: &&str| filled(item.facts.text_of(key)).is_some();
    !matches!(what, What::Mcp | What::Dynamic) && !keys.iter().any(said)
}

/// The changes of a patch that is still being written: each time there are more of them.
pub(super) fn amend(out: &mut Emitter<'_>, item: &Item<'_>, id: Text<'_>, stamp: &Stamp<'_>) {
    let (content, locations) = blocks_of_changes(changes_of(item.facts.get("changes")));
    let mut update = Update {
        title: item.title(What::Edit),
        content,
        locations,
        ..Update::new(id, Some("in_progress"))
    };
    let input = item.input(What::Edit);
    update.facts.input = (!matches!(input, Data::Null)).then_some(input);
    update.facts.no_result = true;
    out.update(update, stamp);
}

/// stdout and stderr as one text.
fn printed(facts: Value<'_>) -> Vec<Content<'_>> {
    let parts = [facts.text_of("stdout"), facts.text_of("stderr")];
    match parts.map(filled) {
        [None, None] => Vec::new(),
        [Some(one), None] | [None, Some(one)] => vec![Content::Text(one)],
        [Some(one), Some(two)] => vec![Content::text(format!("{}{}", &*one, &*two))],
    }
}

/// Whether an MCP call failed, and its content; an error without an answer gives its message.
fn mcp_result<'a>(result: Option<Value<'a>>, error: Option<Value<'a>>) -> (bool, Vec<Content<'a>>) {
    let (mut failed, mut content) = (false, Vec::new());
    if let Some(result) = result.filter(Value::is_object) {
        content = parts_content(result.get("content"));
        failed = is(either(result, "isError", "is_error"), true);
    }
    let message = match error {
        Some(error) if error.is_object() => error.text_of("message"),
        error => error.and_then(|error| error.text()),
    };
    if let Some(message) = message {
        failed = true;
        if content.is_empty() {
            content.push(Content::Text(message));
        }
    }
    (failed, content)
}

/// A terminal word of Codex other than `completed` (failed, declined, interrupted ...) is a failure.
pub(super) fn status_of(word: Option<&str>) -> Option<&'static str> {
    Some(match word? {
        "completed" => "completed",
        "in_progress" | "inProgress" => "in_progress",
        _ => "failed",
    })
}

pub(super) fn mcp_title<'a>(server: Option<Text<'a>>, name: Option<Text<'a>>) -> Option<Text<'a>> {
    Some(with_between(vec![server?, name?], ": "))
}

/// The script of a shell call, or the command line.
pub(super) fn command_title<'a>(command: Option<Value<'_>>) -> Option<Text<'a>> {
    let command = command?;
    let line = if command.is_array() {
        let words = strings(Some(command));
        match &words[..] {
            [_, flag, script] if ["-lc", "-c"].contains(&&**flag) => tool::first_line(script),
            words => {
                let words: Vec<&str> = words.iter().map(|word| &**word).collect();
                tool::first_line(&words.join(" "))
            }
        }
    } else {
        tool::first_line(&command.text()?)
    };
    (!line.is_empty()).then(|| format!("`{line}`").into())
}

/// Milliseconds, from `durationMs` or from `duration` {secs, nanos}.
fn duration_of(facts: Value<'_>) -> Option<Number> {
    price(either(facts, "durationMs", "duration_ms")).or_else(|| {
        let secs = count(facts.path(&["duration", "secs"]))?;
        let nanos = count(facts.path(&["duration", "nanos"]))?;
        let millis = secs.checked_mul(1000)?;
        Some(Number::Int(millis + nanos.div_euclid(1_000_000)))
    })
}

// -------------------------------------------------------------------- changes of files

pub(super) struct Change<'a> {
    path: Text<'a>,
    /// add, delete or update.
    kind: Text<'a>,
    /// The whole file of an add or delete, the unified diff of an update; None: not printed.
    text: Option<Text<'a>>,
    moved: Option<Text<'a>>,
}

/// The changes of a patch in any of its shapes: a list (items) or an object by path (protocol events).
fn changes_of(changes: Option<Value<'_>>) -> Vec<Change<'_>> {
    let Some(changes) = changes else {
        return Vec::new();
    };
    let of_list = changes.items().filter_map(|change| {
        let kind = change.get("kind");
        let object = kind.filter(Value::is_object);
        let kind = object.map_or(kind, |object| object.get("type"));
        Some(Change {
            path: change.text_of("path")?,
            kind: kind.and_then(|kind| kind.text()).unwrap_or("update".into()),
            text: change.text_of("diff"),
            moved: object.and_then(|object| object.text_of("move_path")),
        })
    });
    let mut found: Vec<Change<'_>> = of_list.collect();
    for (path, change) in members(changes) {
        if !change.is_object() {
            continue;
        }
        let (mut kind, mut facts) = (change.text_of("type"), change);
        for word in ["add", "delete", "update"] {
            // up to 0.50: {"add": {...}}
            if let (None, Some(inner)) = (&kind, facts.get(word).filter(Value::is_object)) {
                (kind, facts) = (Some(word.into()), inner);
            }
        }
        let diff = kind.as_deref() == Some("update");
        found.push(Change {
            path,
            kind: kind.unwrap_or("update".into()),
            text: facts.text_of(if diff { "unified_diff" } else { "content" }),
            moved: facts.text_of("move_path"),
        });
    }
    found
}

/// Diff blocks, as far as the wire has the texts, and the locations.
fn blocks_of_changes(changes: Vec<Change<'_>>) -> (Vec<Content<'_>>, Vec<Location<'_>>) {
    let (mut content, mut locations) = (Vec::new(), Vec::new());
    for Change {
        path,
        kind,
        text,
        moved,
    } in changes
    {
        let place = |path| Location { path, line: None };
        match (text, &*kind) {
            (None, _) => locations.push(place(path)),
            (Some(new), "add") => {
                locations.push(place(path.clone()));
                let old = None;
                content.push(Content::Diff { path, old, new });
            }
            (Some(old), "delete") => {
                locations.push(place(path.clone()));
                let (old, new) = (Some(old), "".into());
                content.push(Content::Diff { path, old, new });
            }
            (Some(diff), _) => {
                let (blocks, places) = patch::blocks_of_diff(&path, &diff);
                content.extend(blocks);
                locations.extend(places);
            }
        }
        locations.extend(moved.map(place));
    }
    (content, locations)
}

// -------------------------------------------------------------------- texts

/// The texts of a message's parts: `{"type": "output_text", "text": ...}`, or `{"Text": {"text": ...}}` (0.50).
pub(super) fn texts_of(content: Option<Value<'_>>) -> Vec<Text<'_>> {
    let parts = content.into_iter().flat_map(|content| content.items());
    parts.filter_map(part_text).collect()
}

fn part_text(part: Value<'_>) -> Option<Text<'_>> {
    let part = part.get("Text").filter(Value::is_object).unwrap_or(part);
    let text = part.text_of("text")?;
    (part.text_of("type").as_deref() != Some("refusal")).then_some(text)
}

/// Tool content from a list of text and image parts, MCP's or the model API's.
pub(super) fn parts_content(parts: Option<Value<'_>>) -> Vec<Content<'_>> {
    let parts = parts.into_iter().flat_map(|parts| parts.items());
    parts.filter_map(part_content).collect()
}

fn part_content(part: Value<'_>) -> Option<Content<'_>> {
    if let Some(text) = part.text_of("text") {
        return Some(Content::Text(text));
    }
    if part.text_of("type").as_deref() == Some("image")
        && let Some(data) = part.text_of("data")
    {
        let mime = either(part, "mimeType", "mime_type").and_then(|mime| mime.text());
        return Some(Content::Image(Image {
            data,
            mime: mime.unwrap_or_default(),
            uri: None,
        }));
    }
    let url = either(part, "image_url", "imageUrl")?.text()?;
    Some(Content::Image(image_of(url)))
}

/// An image from a URL, which may be a data URL.
pub(super) fn image_of(url: Text<'_>) -> Image<'_> {
    if let Some((head, data)) = url.split_once(";base64,")
        && let Some(mime) = head.strip_prefix("data:")
    {
        return Image {
            data: url.rewrite(|_| data.to_owned()),
            mime: mime.to_owned().into(),
            uri: None,
        };
    }
    Image {
        data: Text::default(),
        mime: Text::default(),
        uri: Some(url),
    }
}

// -------------------------------------------------------------------- token counts

/// Input, cached and output tokens.
type Sums = [Option<i64>; 3];

/// The token counts of one thread: each model call once, however often and by whatever record it is told.
///
/// A rollout since about 0.153 has a record of its own for each model call, and the token count after it repeats the
/// call. Their sums may differ: only the records' holds the calls that compacted the context, and a resumed thread may
/// go on from an old token count.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Meter {
    /// The thread's sums so far.
    total: Option<Sums>,
    /// As the last token count printed them.
    counted: Option<Sums>,
    /// Records told calls that no token count has repeated yet.
    ahead: bool,
}

impl Meter {
    /// A sum that is told elsewhere.
    pub fn know(&mut self, total: Value<'_>) {
        self.total = Some(sums(total));
        self.counted = self.total;
    }

    /// Tells the model call `last` of a token count if `total`, the thread's sum so far, is news. A thread that is
    /// resumed may start its sum again. Without `last` the call is what the sum grew by.
    pub fn take(
        &mut self,
        out: &mut Emitter<'_>,
        total: Option<Value<'_>>,
        last: Option<Value<'_>>,
        stamp: &Stamp<'_>,
    ) -> bool {
        let before = self.total;
        let total = total.filter(Value::is_object);
        if let Some(total) = total {
            let now = Some(sums(total));
            if now == self.counted || is_mark(total) {
                return false;
            }
            self.counted = now;
            if std::mem::take(&mut self.ahead) || now == before {
                return false;
            }
            self.total = now;
        }
        tell_call(out, total, last, before, stamp, None)
    }

    /// Tells the model call of a record of its own.
    pub fn record(
        &mut self,
        out: &mut Emitter<'_>,
        total: Option<Value<'_>>,
        last: Option<Value<'_>>,
        stamp: &Stamp<'_>,
        key: Option<&str>,
    ) -> bool {
        let before = self.total;
        let total = total.filter(Value::is_object);
        if let Some(total) = total {
            let now = Some(sums(total));
            if now == before {
                return false;
            }
            self.total = now;
        }
        self.ahead = true;
        tell_call(out, total, last, before, stamp, key)
    }
}

fn tell_call(
    out: &mut Emitter<'_>,
    total: Option<Value<'_>>,
    last: Option<Value<'_>>,
    before: Option<Sums>,
    stamp: &Stamp<'_>,
    key: Option<&str>,
) -> bool {
    let call = match (last.filter(Value::is_object), total) {
        (Some(last), _) => usage_of(last),
        (None, Some(total)) => growth(sums(total), before),
        (None, None) => return false,
    };
    let counters = [call.prompt, call.cached, call.completion];
    if counters.into_iter().flatten().all(|number| number == 0) {
        return false; // a sum that was set: no model was called
    }
    out.call_usage(&call, stamp, key, false);
    if let (Some(total), None) = (total, stamp.thread()) {
        out.run_usage(&usage_of(total), stamp, None);
    }
    true
}

/// A context that is full: Codex sets the sum to the size of the window, with all counters 0, and no model call was
/// made.
fn is_mark(total: Value<'_>) -> bool {
    let whole = count(either(total, "total_tokens", "totalTokens"));
    let counted = sums(total).into_iter().flatten().any(|number| number != 0);
    whole.is_some_and(|whole| whole != 0) && !counted
}

/// What a sum grew by; all of it if it began again.
fn growth(now: Sums, before: Option<Sums>) -> Tokens<'static> {
    let before = before.unwrap_or_default();
    let mut grown = now;
    for (new, old) in grown.iter_mut().zip(before) {
        *new = new.map(|new| new - old.unwrap_or(0));
    }
    if grown.into_iter().flatten().any(|number| number < 0) {
        grown = now;
    }
    let sensible = |number: Option<i64>| number.filter(|number| number.abs() <= 1 << 53);
    Tokens {
        prompt: sensible(grown[0]),
        cached: sensible(grown[1]),
        completion: sensible(grown[2]),
        ..Tokens::default()
    }
}

/// Input, cached and output tokens in either spelling.
pub(super) fn sums(usage: Value<'_>) -> Sums {
    [
        count(either(usage, "input_tokens", "inputTokens")),
        count(either(usage, "cached_input_tokens", "cachedInputTokens")),
        count(either(usage, "output_tokens", "outputTokens")),
    ]
}

const COUNTERS: &[&str] = &[
    "input_tokens",
    "inputTokens",
    "cached_input_tokens",
    "cachedInputTokens",
    "output_tokens",
    "outputTokens",
    "type",
];

/// Token counts in either spelling: input includes what was cached, output includes reasoning.
pub(super) fn usage_of(usage: Value<'_>) -> Tokens<'_> {
    let [prompt, cached, completion] = sums(usage);
    Tokens {
        prompt,
        completion,
        cached,
        cost: None,
        extra: others(usage, COUNTERS),
    }
}

// -------------------------------------------------------------------- failures

#[derive(Debug, Default, PartialEq)]
pub(super) struct Retry {
    attempt: Option<i64>,
    attempts: Option<i64>,
    delay_ms: Option<f64>,
}

/// What a retry notice says; None if the message is none.
///
/// `Reconnecting... 1/5 (cause)` (0.50: `Re-connecting...`), up to 0.44 `stream error: cause; retrying 1/5 in 203ms…`.
pub(super) fn retry_of(message: &str) -> Option<Retry> {
    for head in ["Reconnecting... ", "Re-connecting... "] {
        if let Some(rest) = message.strip_prefix(head) {
            let (attempt, attempts) = fraction(rest);
            return Some(Retry {
                attempt,
                attempts,
                delay_ms: None,
            });
        }
    }
    if !message.starts_with("stream error: ") {
        return None;
    }
    let (_, told) = message.rsplit_once("; retrying ")?;
    let (told, delay) = told.split_once(" in ").unwrap_or((told, ""));
    let (attempt, attempts) = fraction(told);
    Some(Retry {
        attempt,
        attempts,
        delay_ms: delay_of(delay),
    })
}

/// The two numbers of `1/5 ...`.
fn fraction(text: &str) -> (Option<i64>, Option<i64>) {
    let (first, rest) = text.split_once('/').unwrap_or((text, ""));
    let second = rest.split_once(' ').map_or(rest, |(second, _)| second);
    match (number(first), number(second)) {
        (Some(first), Some(second)) => (Some(first), Some(second)),
        _ => (None, None),
    }
}

/// Milliseconds of `203ms…` or `1.455s…`.
fn delay_of(text: &str) -> Option<f64> {
    let text = text.trim_end_matches('…');
    let unit = if text.ends_with("ms") { 1.0 } else { 1000.0 };
    let text = text.strip_suffix("ms").unwrap_or(text);
    let text = text.strip_suffix('s').unwrap_or(text);
    let (whole, rest) = text.split_once('.').unwrap_or((text, "0"));
    number(whole)?;
    if !rest.is_empty() {
        number(rest)?;
    }
    let told: f64 = format!("{whole}.{rest}0").parse().ok()?;
    Some(told * unit)
}

/// A number of a few digits.
pub(super) fn number(text: &str) -> Option<i64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let few = digits && (1..10).contains(&text.len());
    few.then(|| text.parse().ok())?
}

/// What stands in messages that name a cap, anywhere: some are bodies of the API, others follow "stream disconnected
/// before completion: " or "Error running remote compact task: "; the apostrophe is a typographic one in new versions.
const LIMITS: &[&str] = &[
    "You've hit your usage limit",
    "Quota exceeded.",
    "Codex ran out of room in the model's context window",
    "Your workspace is out of credits",
    "You hit your spend cap",
    "Incomplete response returned, reason: max_output_tokens",
    "context_length_exceeded",
    "exceeds the context window",
];
const LIMIT_CODES: &[&str] = &[
    "usagelimitexceeded",
    "contextwindowexceeded",
    "sessionbudgetexceeded",
];

/// How a turn with this error ended: a cap that is named is a limit, anything else a failure.
pub(super) fn outcome_of(message: Option<&str>, info: Option<Value<'_>>) -> &'static str {
    let code = match info {
        Some(info) if info.is_object() => info.entries().next().map(|(key, _)| key.into()),
        info => info.and_then(|info| info.text()),
    };
    let code = code.map(|code: Text<'_>| code.replace('_', "").to_lowercase());
    if code.is_some_and(|code| LIMIT_CODES.contains(&code.as_str())) {
        return "limit";
    }
    let plain = message.unwrap_or("").replace('\u{2019}', "'");
    if LIMITS.iter().any(|part| plain.contains(part)) {
        "limit"
    } else {
        "failed"
    }
}

/// What an aborted turn ended in: all reasons but one were somebody's will.
pub(super) fn abort_of(reason: Option<&str>) -> &'static str {
    match reason {
        Some("budget_limited") => "limit",
        _ => "cancelled",
    }
}

/// A retry notice: a state, and an error that is none of the run.
pub(super) fn tell_retry(
    out: &mut Emitter<'_>,
    message: Text<'_>,
    retry: Option<Retry>,
    stamp: &Stamp<'_>,
) {
    let retry = retry.unwrap_or_default();
    let state = State::new("retry")
        .with("phase", "start")
        .with("attempt", retry.attempt)
        .with("maxAttempts", retry.attempts)
        .with("delayMs", retry.delay_ms.map(Number::Float))
        .with("message", message.borrow());
    out.state(state, stamp);
    out.notice(message, stamp);
}

// -------------------------------------------------------------------- small things

/// The value of a field in the one spelling or the other.
pub(super) fn either<'a>(item: Value<'a>, one: &str, other: &str) -> Option<Value<'a>> {
    let value = item.get(one).filter(|value| !value.is_null());
    value.or_else(|| item.get(other))
}

/// The members of an object but for some.
pub(super) fn others<'a>(object: Value<'a>, but: &[&str]) -> Vec<(Text<'a>, Data<'a>)> {
    let kept = object
        .entries()
        .filter(|(key, _)| !but.iter().any(|name| key.eq(name)));
    kept.map(|(key, value)| (key.into(), value.into()))
        .collect()
}

/// The members of an object, the last of a repeated key in the place of the first.
fn members(object: Value<'_>) -> Vec<(Text<'_>, Value<'_>)> {
    let mut places = HashMap::new();
    let mut found: Vec<(Text<'_>, Value<'_>)> = Vec::new();
    for (key, value) in object.entries() {
        match places.get(&key.wtf8()) {
            Some(&at) => {
                let (_, known): &mut (_, _) = &mut found[at];
                *known = value;
            }
            None => {
                places.insert(key.wtf8(), found.len());
                found.push((key.into(), value));
            }
        }
    }
    found
}

/// The strings of a list.
pub(super) fn strings(list: Option<Value<'_>>) -> Vec<Text<'_>> {
    let items = list.into_iter().flat_map(|list| list.items());
    items.filter_map(|item| item.text()).collect()
}

pub(super) fn is(value: Option<Value<'_>>, wanted: bool) -> bool {
    value.and_then(|value| value.as_bool()) == Some(wanted)
}

/// Texts as one.
pub(super) fn joined(texts: Vec<Text<'_>>) -> Text<'_> {
    with_between(texts, "")
}

/// Texts as lines of one.
pub(super) fn lines(texts: Vec<Text<'_>>) -> Text<'_> {
    with_between(texts, "\n")
}

fn with_between<'a>(mut texts: Vec<Text<'a>>, between: &str) -> Text<'a> {
    if texts.len() == 1 {
        return texts.remove(0);
    }
    let parts: Vec<&str> = texts.iter().map(|text| &**text).collect();
    let whole = parts.join(between);
    match texts.iter().find(|text| text.is_lossy()) {
        Some(text) => text.rewrite(|_| whole),
        None => whole.into(),
    }
}

/// A text that outlives its record.
pub(super) fn own(text: &Text<'_>) -> Text<'static> {
    text.rewrite(str::to_owned)
}
