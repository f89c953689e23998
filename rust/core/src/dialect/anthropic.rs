//! Shapes of Anthropic's messages that Claude Code's stream and its transcripts share: blocks, results, plans, usage.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{is_true, members};
use crate::data::Data;
use crate::emit::{Emitter, Update};
use crate::event::{Image, Item, Kind, Location, PlanEntry, Stamp, Tokens};
use crate::json::{Series, Text, Value};
use crate::number::{Number, count, price};
use crate::tool;

/// The model that the harness names for what it says itself.
pub(super) const SYNTHETIC: &str = "<synthetic>";

/// Stream events with a delta of text. Who prints them says what must be the same.
pub(super) const TEXT_DELTAS: Series = Series {
    is: &[
        (&["type"], &["stream_event"]),
        (&["event", "type"], &["content_block_delta"]),
        (&["event", "delta", "type"], &["text_delta"]),
    ],
    text: &["event", "delta", "text"],
    ..Series::NO_FACTS
};
/// The same of a thought.
pub(super) const THINKING_DELTAS: Series = Series {
    is: &[
        (&["type"], &["stream_event"]),
        (&["event", "type"], &["content_block_delta"]),
        (&["event", "delta", "type"], &["thinking_delta"]),
    ],
    text: &["event", "delta", "thinking"],
    ..Series::NO_FACTS
};

/// How the texts begin by which the harness tells the model that a turn was stopped, and how the turn ended: by a
/// person, or with its process (the Agent SDK of 2.1.332 has the list).
const INTERRUPTS: [(&str, &str); 3] = [
    ("[Request interrupted by user", "cancelled"),
    ("[Request interrupted: the session ended", "incomplete"),
    ("[This turn ended before it finished.]", "incomplete"),
];
/// How the harness begins what it writes in the user's name.
const WRAPPERS: [&str; 9] = [
    "<local-command-",
    "<command-name>",
    "<command-message>",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<task-notification>", // 2.1.39, without another mark
    "<ide_opened_file>",   // 2.1.79, what an editor adds to the prompt
    "<ide_selection>",
];
/// Caps, as error codes and terminal reasons name them.
const LIMITS: [&str; 6] = [
    "max_turns",
    "budget_exhausted",
    "prompt_too_long",
    "blocking_limit",
    "usage_limit_reached",
    "max_output_tokens",
];
/// The same in the words of versions without such codes.
const LIMIT_WORDS: [&str; 17] = [
    "Prompt is too long",
    "API Error: Claude's response exceeded the ",
    "API Error: The model has reached its context window limit",
    // a plan that is used up: 1.0
    "Claude AI usage limit reached",
    "5-hour limit reached",
    "Limit reached ",
    "Opus weekly limit reached",
    "Session limit reached",
    "Spending cap reached",
    "Usage limit reached",
    "Weekly limit reached",
    // 2.0 and 2.1
    "You've hit your ",
    "You've reached your ",
    "You're out of extra usage",
    "You're out of usage credits",
    "Your org is out of usage",
    "Your group's usage limit is ",
];

// -------------------------------------------------------------------- blocks

/// A block of a message; a content that is a string is one text block.
#[derive(Clone, Copy)]
pub(super) enum Block<'a> {
    Plain(Value<'a>),
    Object(Value<'a>),
}

/// The blocks of a message.
pub(super) fn blocks_of<'a>(content: Option<Value<'a>>) -> Vec<Block<'a>> {
    let Some(content) = content else {
        return Vec::new();
    };
    if content.as_str().is_some() {
        return vec![Block::Plain(content)];
    }
    let objects = content.items().filter(Value::is_object);
    objects.map(Block::Object).collect()
}

impl<'a> Block<'a> {
    /// What kind of block it is; "" if it does not say.
    pub(super) fn kind(&self) -> Text<'a> {
        match self {
            Block::Plain(_) => "text".into(),
            Block::Object(value) => value.text_of("type").unwrap_or_default(),
        }
    }

    /// A member of the block.
    pub(super) fn get(&self, key: &str) -> Option<Value<'a>> {
        match self {
            Block::Plain(text) => (key == "text").then_some(*text),
            Block::Object(value) => value.get(key),
        }
    }

    pub(super) fn text_of(&self, key: &str) -> Option<Text<'a>> {
        self.get(key)?.text()
    }

    /// The text of a text block.
    pub(super) fn text(&self) -> Option<Text<'a>> {
        (&*self.kind() == "text").then(|| self.text_of("text"))?
    }

    /// How the turn ended, if this is a text by which the harness tells the model that it was stopped.
    pub(super) fn interrupt(&self) -> Option<&'static str> {
        let text = self.text()?;
        let mut interrupts = INTERRUPTS.iter();
        let (_, outcome) = interrupts.find(|(beginning, _)| text.starts_with(beginning))?;
        Some(*outcome)
    }

    /// A local command and its output, which the harness wraps in tags of its own.
    pub(super) fn is_wrapped(&self) -> bool {
        let wrapped = |text: Text<'_>| WRAPPERS.iter().any(|tag| text.starts_with(tag));
        self.text().is_some_and(wrapped)
    }

    /// An image block in the shape of the events.
    fn image(&self) -> Option<Image<'a>> {
        if &*self.kind() != "image" {
            return None;
        }
        let source = self.get("source").filter(Value::is_object)?;
        let mime = source.text_of("media_type").unwrap_or_default();
        let data = source.text_of("data");
        let uri = match data {
            Some(_) => None,
            None => Some(source.text_of("url")?),
        };
        let data = data.unwrap_or_default();
        Some(Image { data, mime, uri })
    }
}

/// The texts of a message, joined by LF.
pub(super) fn joined_text<'a>(content: Option<Value<'a>>) -> Text<'a> {
    let blocks = blocks_of(content);
    let texts: Vec<Text<'a>> = blocks.iter().filter_map(Block::text).collect();
    let lossy = texts.iter().find(|text| text.is_lossy());
    let Some(model) = lossy.or(texts.first()) else {
        return Text::default();
    };
    let plain: Vec<&str> = texts.iter().map(|text| &**text).collect();
    model.rewrite(|_| plain.join("\n"))
}

/// What kind of chunk a block of text becomes.
pub(super) fn chunk_of(kind: &str) -> Option<Kind> {
    match kind {
        "text" => Some(Kind::Message),
        "thinking" => Some(Kind::Thought),
        _ => None,
    }
}

/// Whether a block of this kind is a tool call.
pub(super) fn is_call(kind: &str) -> bool {
    matches!(kind, "tool_use" | "server_tool_use" | "mcp_tool_use")
}

/// Whether an error names a cap, by one of its codes or in the harness's own words.
pub(super) fn is_limit(codes: [Option<Text<'_>>; 2], words: &str) -> bool {
    let mut codes = codes.into_iter().flatten();
    codes.any(|code| LIMITS.contains(&&*code)) || LIMIT_WORDS.iter().any(|w| words.starts_with(w))
}

/// A fact of a line that goes into an event's `extra`.
pub(super) fn extra_of<'a>(value: Value<'a>, key: &'static str) -> Vec<(Text<'a>, Data<'a>)> {
    let text = value.text_of(key);
    text.map(|text| (key.into(), text.into()))
        .into_iter()
        .collect()
}

/// What a person typed; false if there is nothing to show.
pub(super) fn user_block(block: Block<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) -> bool {
    if let Some(text) = block.text().filter(|text| !text.is_empty()) {
        out.whole(Kind::User, text, stamp);
    } else if let Some(image) = block.image() {
        out.image(Kind::User, &image, stamp);
    } else {
        return false;
    }
    true
}

/// A block of an assistant message that is neither text nor thought nor call.
pub(super) fn other_block(block: Block<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    if let Some(image) = block.image() {
        out.image(Kind::Message, &image, stamp);
    } else if block.kind().ends_with("_tool_result") {
        server_result(block, stamp, out);
    }
}

/// What a block of a record told: a text, by the kind and key of its block, or a call, by its id.
#[derive(Clone, Deserialize, Serialize)]
pub(super) enum Part {
    Text(Kind, i64),
    Call(String),
}

/// What the records of a message told that was not taken back, by their uuids, in order.
pub(super) type Records = Vec<(String, Vec<Part>)>;

/// Takes out what the named records told, the last part first.
pub(super) fn retracted(records: &mut Records, uuids: Option<Value<'_>>) -> Option<Vec<Part>> {
    let uuids = uuids.into_iter().flat_map(|uuids| uuids.items());
    let named: HashSet<String> = uuids
        .filter_map(|uuid| uuid.text().map(Text::into_string))
        .collect();
    let mut gone = records
        .iter_mut()
        .filter(|(uuid, _)| named.contains(uuid))
        .peekable();
    gone.peek()?;
    let mut parts: Vec<Part> = gone.flat_map(|(_, parts)| std::mem::take(parts)).collect();
    parts.reverse();
    Some(parts)
}

/// The part is void: its text goes, its call has failed if it has no result.
pub(super) fn take_back(part: Part, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    match part {
        Part::Text(kind, key) => out.drop_block(kind, key, stamp),
        Part::Call(id) if out.is_open(&id) => {
            out.update(Update::new(id, Some("failed")), stamp);
        }
        Part::Call(_) => {}
    }
}

// -------------------------------------------------------------------- tool results

/// The content of a tool result: texts and images; references and other parts are left out.
fn content_of(content: Option<Value<'_>>) -> Vec<Item<'_>> {
    let blocks = blocks_of(content).into_iter();
    let items = blocks.filter_map(|block| match block.text() {
        Some(text) => Some(Item::Text(text)),
        None => block.image().map(Item::Image),
    });
    items.collect()
}

/// Whether a tool_result says so, or its structured twin that the call was cut short.
pub(super) fn has_failed(block: Block<'_>, raw: Option<Value<'_>>) -> bool {
    is_true(block.get("is_error")) || is_true(raw.and_then(|raw| raw.get("interrupted")))
}

/// A tool_result block; `raw` is its structured twin (None: not printed).
pub(super) fn tool_result(
    id: Text<'_>,
    block: Block<'_>,
    raw: Option<Value<'_>>,
    stamp: &Stamp<'_>,
    out: &mut Emitter<'_>,
) {
    // a call that stepped aside for what a person said goes on, and its result is told in another turn (2.1.332)
    let detached = raw.is_some_and(|raw| is_true(raw.get("detachedToolCall")));
    let status = match (has_failed(block, raw), detached) {
        (true, _) => "failed",
        (false, true) => "in_progress",
        (false, false) => "completed",
    };
    let (diffs, places) = patch_of(raw);
    let mut content = content_of(block.get("content"));
    content.extend(diffs);
    let mut update = Update {
        content,
        locations: places,
        raw_output: raw.map(Data::Wire),
        ..Update::new(id, Some(status))
    };
    update.facts.duration_ms = duration(raw);
    out.update(update, stamp);
}

/// The result of a tool that ran at the provider: it stands in the assistant's message.
fn server_result(block: Block<'_>, stamp: &Stamp<'_>, out: &mut Emitter<'_>) {
    let Some(id) = block.text_of("tool_use_id") else {
        return;
    };
    let content = block.get("content").filter(|content| !content.is_null());
    let of = |key| content.and_then(|content| content.get(key));
    let error = of("error_code").filter(|error| !error.is_null());
    let code = count(of("return_code"));
    let failed = has_failed(block, None) || error.is_some() || code.is_some_and(|code| code != 0);
    let mut update = Update {
        content: match error.and_then(|error| error.text()) {
            Some(error) => vec![Item::Text(error)],
            None => content_of(content),
        },
        raw_output: content.map(Data::Wire),
        ..Update::new(id, Some(if failed { "failed" } else { "completed" }))
    };
    update.facts.exit_code = code;
    out.update(update, stamp);
}

/// Diffs and places of an edit, hunk by hunk, as its structured result prints them.
fn patch_of(raw: Option<Value<'_>>) -> (Vec<Item<'_>>, Vec<Location<'_>>) {
    let (mut diffs, mut places) = (Vec::new(), Vec::new());
    let of = |key| raw.and_then(|raw| raw.get(key));
    let Some(path) = of("filePath").and_then(|path| path.text()) else {
        return (diffs, places);
    };
    let hunks = of("structuredPatch");
    for hunk in hunks.into_iter().flat_map(|hunks| hunks.items()) {
        let Some(lines) = hunk.get("lines").filter(Value::is_array) else {
            continue;
        };
        let lines: Vec<Text<'_>> = lines.items().filter_map(|line| line.text()).collect();
        let side = |mark: &str| {
            let of_side = |line: &Text<'_>| {
                let kept = line.strip_prefix(' ').or_else(|| line.strip_prefix(mark));
                kept.map(str::to_owned)
            };
            let side: Vec<String> = lines.iter().filter_map(of_side).collect();
            Text::from(side.join("\n"))
        };
        diffs.push(Item::Diff {
            path: path.clone(),
            old: Some(side("-")),
            new: side("+"),
        });
        if let Some(line) = count(hunk.get("newStart")).filter(|line| *line != 0) {
            places.push(Location {
                path: path.clone(),
                line: Some(line),
            });
        }
    }
    (diffs, places)
}

/// How long a call took, where its structured result says it.
fn duration(raw: Option<Value<'_>>) -> Option<Number> {
    let raw = raw?;
    price(raw.get("totalDurationMs")).or_else(|| price(raw.get("durationMs")))
}

// -------------------------------------------------------------------- plans

/// The plan that todo tools keep: whole lists (TodoWrite), or one task at a time (TaskCreate, TaskUpdate).
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Plan {
    tasks: Vec<Task>,
    /// The open task calls, by id.
    calls: HashMap<String, TaskCall>,
}

#[derive(Deserialize, Serialize)]
struct Task {
    id: String,
    content: Option<String>,
    status: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct TaskCall {
    name: String,
    task: Option<String>,
    subject: Option<String>,
}

impl Plan {
    /// Takes a tool call; gives the plan if the call itself tells it.
    pub(super) fn call<'a>(&mut self, block: Block<'a>) -> Option<Vec<PlanEntry<'a>>> {
        let name = block.text_of("name")?;
        let input = block.get("input");
        let of = |key| input.and_then(|input| input.get(key));
        if &*name == "TodoWrite" {
            return tool::plan_of(of("todos"), "content", "status");
        }
        if matches!(&*name, "TaskCreate" | "TaskUpdate" | "TaskList") {
            let text = |key| {
                of(key)
                    .and_then(|value| value.text())
                    .map(Text::into_string)
            };
            let call = TaskCall {
                name: name.into_string(),
                task: text("taskId"),
                subject: text("subject"),
            };
            let id = block.text_of("id")?.into_string();
            self.calls.insert(id, call);
        }
        None
    }

    /// Takes a result; gives the plan if it changed.
    pub(super) fn result(
        &mut self,
        id: &str,
        failed: bool,
        raw: Option<Value<'_>>,
    ) -> Option<Vec<PlanEntry<'_>>> {
        let call = self.calls.remove(id)?;
        let raw = raw.filter(|raw| raw.is_object() && !failed)?;
        match &*call.name {
            "TaskList" => {
                self.tasks.clear();
                let tasks = raw.get("tasks");
                for task in tasks.into_iter().flat_map(|tasks| tasks.items()) {
                    self.add(task);
                }
            }
            "TaskCreate" => {
                if let Some(task) = raw.get("task") {
                    self.add(task);
                }
            }
            _ => self.change(call, raw.path(&["statusChange", "to"])),
        }
        let entry = |task| Self::entry(task);
        Some(self.tasks.iter().filter_map(entry).collect())
    }

    fn entry(task: &Task) -> Option<PlanEntry<'_>> {
        let content = task.content.as_deref()?;
        Some(tool::plan_entry(
            content.into(),
            task.status.as_deref(),
            None,
        ))
    }

    fn add(&mut self, task: Value<'_>) {
        let Some(id) = task.text_of("id").map(Text::into_string) else {
            return;
        };
        let content = task.text_of("subject").map(Text::into_string);
        let status = task.text_of("status").map(Text::into_string);
        match self.tasks.iter_mut().find(|task| task.id == id) {
            Some(task) => (task.content, task.status) = (content, status),
            None => self.tasks.push(Task {
                id,
                content,
                status,
            }),
        }
    }

    fn change(&mut self, call: TaskCall, status: Option<Value<'_>>) {
        let found = self
            .tasks
            .iter()
            .position(|task| Some(&task.id) == call.task.as_ref());
        let Some(at) = found else { return };
        let task = &mut self.tasks[at];
        task.content = call.subject.or(task.content.take());
        let Some(status) = status.filter(|status| !status.is_null()) else {
            return;
        };
        let status = status.text().map(Text::into_string);
        if status.as_deref() == Some("deleted") {
            self.tasks.remove(at);
        } else {
            task.status = status;
        }
    }
}

// -------------------------------------------------------------------- usage

/// Counters as the wire prints them; None: not printed.
#[derive(Clone, Copy, Default, Deserialize, Serialize)]
pub(super) struct Counts {
    /// In the order of [`COUNTERS`].
    numbers: [Option<i64>; 4],
}

/// Counters of a usage object, and what `modelUsage` calls them.
const COUNTERS: [(&str, &str); 4] = [
    ("input_tokens", "inputTokens"),
    ("cache_creation_input_tokens", "cacheCreationInputTokens"),
    ("cache_read_input_tokens", "cacheReadInputTokens"),
    ("output_tokens", "outputTokens"),
];

impl Counts {
    /// The counters that a usage object prints.
    pub(super) fn of_usage(usage: Option<Value<'_>>) -> Counts {
        let of = |key| usage.and_then(|usage| usage.get(key));
        Counts {
            numbers: COUNTERS.map(|(name, _)| count(of(name))),
        }
    }

    pub(super) fn add(&mut self, other: Counts) {
        for (mine, new) in self.numbers.iter_mut().zip(other.numbers) {
            *mine = match (*mine, new) {
                (Some(one), Some(two)) => Some(one.saturating_add(two)),
                (one, two) => one.or(two),
            };
        }
    }

    /// Takes over what is printed now; a zero never takes the place of a number.
    pub(super) fn renew(&mut self, other: Counts) {
        for (mine, new) in self.numbers.iter_mut().zip(other.numbers) {
            if new.is_some_and(|new| new != 0 || mine.is_none()) {
                *mine = new;
            }
        }
    }

    /// Nothing was printed.
    pub(super) fn is_empty(self) -> bool {
        self.numbers == [None; 4]
    }

    /// Something was printed that is not zero.
    pub(super) fn is_any(self) -> bool {
        self.numbers
            .iter()
            .any(|number| !matches!(number, None | Some(0)))
    }

    /// As token usage: what was read from or written to the cache is part of the prompt.
    pub(super) fn to_tokens<'a>(self, cost: Option<Number>, tier: Option<Text<'a>>) -> Tokens<'a> {
        let [input, written, read, completion] = self.numbers;
        let prompt = [input, written, read].into_iter().flatten();
        let mut extra: Vec<(Text<'a>, Data<'a>)> = Vec::new();
        if let Some(written) = written {
            extra.push((COUNTERS[1].0.into(), written.into()));
        }
        if let Some(tier) = tier {
            extra.push(("service_tier".into(), tier.into()));
        }
        Tokens {
            prompt: prompt.reduce(|a, b| a + b),
            completion,
            cached: read,
            cost,
            extra,
        }
    }
}

/// The counters of each model, as `modelUsage` has them.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct Models(Vec<ModelTotal>);

#[derive(Deserialize, Serialize)]
struct ModelTotal {
    name: String,
    counts: Counts,
    cost: Option<Number>,
}

impl Models {
    pub(super) fn of(usage: Option<Value<'_>>) -> Models {
        let models = usage.map(members).unwrap_or_default();
        let models = models.into_iter().map(|(name, model)| ModelTotal {
            name: name.lossy().into_owned(),
            counts: Counts {
                numbers: COUNTERS.map(|(_, name)| count(model.get(name))),
            },
            cost: price(model.get("costUSD")),
        });
        Models(models.collect())
    }

    /// Adds the counters of each model to what is known of it.
    pub(super) fn add(&mut self, news: Models) {
        for new in news.0 {
            match self.0.iter_mut().find(|known| known.name == new.name) {
                Some(known) => {
                    known.counts.add(new.counts);
                    known.cost = match (known.cost, new.cost) {
                        (Some(one), Some(two)) => Some(one + two),
                        (one, two) => one.or(two),
                    };
                }
                None => self.0.push(new),
            }
        }
    }

    /// The counters of all models together.
    pub(super) fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        for model in &self.0 {
            sum.add(model.counts);
        }
        sum
    }

    /// The harness's own total of each model as token usage.
    pub(super) fn to_tokens(&self) -> Vec<(Text<'_>, Tokens<'_>)> {
        let models = self.0.iter();
        models
            .map(|model| {
                let tokens = model.counts.to_tokens(model.cost, None);
                (model.name.as_str().into(), tokens)
            })
            .collect()
    }
}
