//! What ACP's messages are made of: methods, and content blocks, locations, models and errors as events have them.

use crate::emit::Emitter;
use crate::event::{Image, Item, Location};
use crate::json::{Kind, Text, Value};
use crate::number::count;

/// The agent asks its client.
pub const CLIENT_METHODS: &[&str] = &[
    "fs/read_text_file",
    "fs/write_text_file",
    "terminal/create",
    "terminal/output",
    "terminal/release",
    "terminal/wait_for_exit",
    "terminal/kill",
    "mcp/connect",
    "mcp/message",
    "mcp/disconnect",
    "elicitation/complete",
    "$/cancel_request",
];
/// The client asks the agent.
pub const AGENT_METHODS: &[&str] = &[
    "initialize",
    "authenticate",
    "logout",
    "auth/login",
    "auth/logout",
    "session/new",
    "session/load",
    "session/resume",
    "session/fork",
    "session/list",
    "session/delete",
    "session/close",
    "session/prompt",
    "session/cancel",
    "session/set_mode",
    "session/set_model",
    "session/set_config_option",
];
/// What agents add of their own, and parts of the protocol that say nothing of a run.
const EXTENSIONS: &[&str] = &["_", "craft/", "providers/", "nes/", "document/"];

pub fn is_extension(method: &str) -> bool {
    EXTENSIONS.iter().any(|start| method.starts_with(start))
}

/// The status of a call; "cancelled" is a word of version 2.
pub fn status_of(update: Option<Value<'_>>) -> Option<&'static str> {
    match update?.text()?.as_str() {
        "pending" => Some("pending"),
        "in_progress" => Some("in_progress"),
        "completed" => Some("completed"),
        "failed" | "cancelled" => Some("failed"),
        _ => None,
    }
}

pub fn kind_of(kind: Option<Value<'_>>) -> Option<&'static str> {
    Some(match kind?.text()?.as_str() {
        "read" => "read",
        "edit" => "edit",
        "delete" => "delete",
        "move" => "move",
        "search" => "search",
        "execute" => "execute",
        "think" => "think",
        "fetch" => "fetch",
        "switch_mode" => "switch_mode",
        _ => "other",
    })
}

/// A text that names something: as clean as events show it, so that it names the same thing everywhere.
pub fn id_of(value: Option<Value<'_>>, out: &mut Emitter<'_>) -> Option<String> {
    Some(out.clean(value?.text()?).into_owned())
}

/// None for JSON null as for no value at all.
pub fn given(value: Option<Value<'_>>) -> Option<Value<'_>> {
    value.filter(|value| !value.is_null())
}

/// An object that has members.
pub fn filled_object(value: Option<Value<'_>>) -> Option<Value<'_>> {
    value.filter(|value| value.is_object() && !value.is_empty())
}

/// The elements of a list; nothing for other values.
pub fn items(value: Option<Value<'_>>) -> impl Iterator<Item = Value<'_>> {
    value.into_iter().flat_map(|list| list.items())
}

/// Texts with something between them: lossy if one of them is.
pub fn glued(parts: &[Text<'_>], between: &str) -> Option<Text<'static>> {
    let one = parts
        .iter()
        .find(|part| part.is_lossy())
        .or(parts.first())?;
    let texts: Vec<&str> = parts.iter().map(|part| part.as_str()).collect();
    Some(one.rewrite(|_| texts.join(between)))
}

/// The text blocks of a list, joined by one line feed; None if there are none.
pub fn joined(blocks: Option<Value<'_>>) -> Option<Text<'static>> {
    let texts: Vec<Text<'_>> = items(blocks)
        .filter_map(|block| block.text_of("text"))
        .collect();
    glued(&texts, "\n")
}

/// A content block in the shape of events.
pub enum Block<'a> {
    Text(Text<'a>),
    Image(Image<'a>),
}

impl<'a> Block<'a> {
    /// None for audio, resources and links.
    pub fn of(content: Option<Value<'a>>) -> Option<Block<'a>> {
        let content = content?;
        match content.text_of("type")?.as_str() {
            "text" => content.text_of("text").map(Block::Text),
            "image" => Some(Block::Image(Image {
                data: content.text_of("data")?,
                mime: content.text_of("mimeType")?,
                uri: content.text_of("uri"),
            })),
            _ => None,
        }
    }
}

/// An item of tool content in the shape of events; None for what has none (terminals, links, patches).
pub fn item_of(item: Value<'_>) -> Option<Item<'_>> {
    match item.text_of("type")?.as_str() {
        "content" => Some(match Block::of(item.get("content"))? {
            Block::Text(text) => Item::Text(text),
            Block::Image(image) => Item::Image(image),
        }),
        "diff" => Some(Item::Diff {
            path: item.text_of("path")?,
            old: item.text_of("oldText"),
            new: item.text_of("newText")?,
        }),
        _ => None,
    }
}

/// The bytes of a string in base64; none if it is not.
pub fn from_base64(data: Option<Value<'_>>) -> Vec<u8> {
    let Some(data) = data.and_then(|data| data.text()) else {
        return Vec::new();
    };
    let sextet = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits = data.trim_end_matches('=').as_bytes();
    if data.len() % 4 != 0 || data.len() - digits.len() > 2 {
        return Vec::new();
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let mut bits = 0;
        for place in 0..4 {
            let Some(six) = four.get(place).map_or(Some(0), |digit| sextet(*digit)) else {
                return Vec::new();
            };
            bits = bits << 6 | u32::from(six);
        }
        let [_, three @ ..] = bits.to_be_bytes();
        bytes.extend_from_slice(&three[..four.len() * 3 / 4]);
    }
    bytes
}

/// Paths, with a line only if it can be one: lines count from 1, and some agents print 0 for none.
pub fn locations_of(list: Option<Value<'_>>) -> Vec<Location<'_>> {
    items(list)
        .filter_map(|item| {
            Some(Location {
                path: item.text_of("path").filter(|path| !path.is_empty())?,
                line: count(item.get("line")).filter(|line| *line >= 1),
            })
        })
        .collect()
}

/// The model that a session runs on, from `models` or from its options.
pub fn model_of(result: Option<Value<'_>>) -> Option<Text<'_>> {
    let result = result?;
    let named = result.path(&["models", "currentModelId"]);
    named.and_then(|model| model.text()).or_else(|| {
        items(result.get("configOptions"))
            .filter(|option| {
                let names = ["id", "configId", "category"];
                names
                    .into_iter()
                    .any(|name| option.text_of(name).as_deref() == Some("model"))
            })
            .find_map(|option| option.text_of("currentValue"))
    })
}

pub fn info_of(initialized: Value<'_>) -> Option<Value<'_>> {
    filled_object(initialized.get("agentInfo")).or_else(|| filled_object(initialized.get("info")))
}

/// Name and version of the agent, from its answer to initialize.
pub fn version_of(initialized: Value<'_>) -> Option<Text<'static>> {
    let info = info_of(initialized)?;
    let parts: Vec<Text<'_>> = ["name", "version"]
        .into_iter()
        .filter_map(|key| info.text_of(key).filter(|part| !part.is_empty()))
        .collect();
    glued(&parts, " ")
}

/// The message of a JSON-RPC error, with the cause that some agents put into its data.
pub fn error_text(error: Value<'_>) -> Text<'static> {
    let message = error.text_of("message").unwrap_or_default();
    let data = error.get("data");
    let filled = |text: Option<Text<'static>>| text.filter(|text| !text.is_empty());
    let own = |value: Option<Value<'_>>| value?.text().map(|text| text.rewrite(str::to_owned));
    let cause = filled(own(data))
        .or_else(|| filled(own(data.and_then(|data| data.get("message")))))
        .or_else(|| filled(own(data.and_then(|data| data.get("details")))));
    let message = message.rewrite(str::to_owned);
    match cause {
        Some(cause) if !message.contains(cause.as_str()) => {
            if message.is_empty() {
                cause
            } else {
                glued(&[message.borrow(), cause], ": ").unwrap_or(message)
            }
        }
        _ => message,
    }
}

/// A request id as a key: the number 1 and the string "1" are two ids.
pub fn request_id(value: Option<Value<'_>>) -> String {
    let Some(value) = value else {
        return "null".to_owned();
    };
    match value.kind() {
        Kind::String => format!("\"{}\"", value.text().unwrap_or_default().as_str()),
        _ => count(Some(value)).map_or("null".to_owned(), |number| number.to_string()),
    }
}
