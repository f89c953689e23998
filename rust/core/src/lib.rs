//! headrace-core: reads the line-delimited JSON that coding agents print.
//!
//! The way of the data, one direction and no way back:
//! [`source`] -> [`frame`] -> [`json`] -> [`record`] -> [`detect`] -> [`dialect`] -> [`emit`] -> [`run`],
//! wired together in [`parser`]; [`ahead`] has other threads do some of it early, and what they tell waits in a
//! [`backlog`]. Each stage knows only the one before it; nothing here knows of Python.
//!
//! ```
//! use headrace_core::event::Kinds;
//! use headrace_core::parser::{NoOutput, Parser};
//! use headrace_core::record::Options;
//! use headrace_core::run::Exit;
//!
//! let stream = br#"{"type": "text", "content": "Hello"}
//! {"type": "usage_stats", "input_tokens": 10, "output_tokens": 2}
//! {"type": "done", "content": "Hello", "response": "Hello"}
//! "#;
//! let mut parser = Parser::new(None, Kinds::NONE, Options::default());
//! parser.feed(stream, &mut NoOutput)?;
//! parser.close(&mut NoOutput)?;
//! let exit = Exit::default();
//! let run = parser.run(&exit);
//! assert_eq!(&*run.get("final_text").unwrap().text().unwrap(), "Hello");
//! # Ok::<(), headrace_core::record::Error>(())
//! ```

pub mod ahead;
pub mod backlog;
pub mod borders;
pub mod data;
pub mod detect;
pub mod dialect;
pub mod emit;
pub mod event;
pub mod frame;
pub mod json;
pub mod number;
pub mod parser;
pub mod patch;
pub mod reader;
pub mod record;
pub mod report;
pub mod run;
pub mod source;
pub mod tool;
