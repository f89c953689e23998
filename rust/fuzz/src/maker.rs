//! Streams of records that are alike, made from the bytes of a fuzzer.

use std::ops::Range;

use headrace_core::json::{Kind, Tape, Value};

/// Bounds of a line of a recording, and of a stream before the last instruction.
const MAX_LINE: usize = 300;
const MAX_LINES: usize = 32;
const MAX_BYTES: usize = 4 << 10;

/// A text, and where its strings and numbers are: without quotes, keys left out.
pub struct Shape {
    text: Vec<u8>,
    values: Vec<Range<usize>>,
}

impl Shape {
    fn new(text: &[u8]) -> Option<Shape> {
        let mut tape = Tape::new();
        let doc = tape.parse(text).ok()?;
        let mut values = Vec::new();
        find_values(doc.root(), text, &mut values);
        Some(Shape {
            text: text.to_vec(),
            values,
        })
    }

    /// What is left of the text without its values.
    fn frame(&self) -> Vec<u8> {
        let mut rest = self.text.clone();
        for range in self.values.iter().rev() {
            rest.drain(range.clone());
        }
        rest
    }
}

fn find_values(value: Value<'_>, text: &[u8], found: &mut Vec<Range<usize>>) {
    let start = value.raw().as_ptr().addr() - text.as_ptr().addr();
    let end = start + value.raw().len();
    match value.kind() {
        Kind::String => found.push(start + 1..end - 1),
        Kind::Number => found.push(start..end),
        Kind::Array => value
            .items()
            .for_each(|item| find_values(item, text, found)),
        Kind::Object => value
            .entries()
            .for_each(|(_, member)| find_values(member, text, found)),
        Kind::Null | Kind::Bool => {}
    }
}

/// The short lines of a recording, one of each shape.
pub fn shapes_of(stream: &[u8]) -> Vec<Shape> {
    let mut seen = std::collections::HashSet::new();
    let lines = stream
        .split(|&byte| byte == b'\n')
        .filter(|line| line.len() <= MAX_LINE);
    lines
        .filter_map(Shape::new)
        .filter(|shape| seen.insert(shape.frame()))
        .collect()
}

/// Shapes that are near each other, or near some bound.
pub fn made_up() -> Vec<Shape> {
    let texts = [
        r#"{"n":1}"#,
        r#"{"n":"1"}"#,
        r#"{"a":"x","n":1}"#,
        r#"{"a":"x","m":1}"#,
        "{ \"a\" : 1 ,\t\"b\":[ \"x\" ] , \"c\" :{ } }\r",
        r#" {"a":"x"}"#,
        r#"["a",{"type":"x"},1]"#,
        r#"{"a":{"b":[1,"x",[],{},{"b":2}]},"type":"x","type":"y"}"#,
        r#"{"a":["x",{"b":[-1,"y",[],{}]},null],"b":"z"}"#,
        r#"{"a":["x",{"b":[-1,"y",[],{}]},true],"b":"z"}"#,
        r#"{"type":"x","usage":{"input":1,"cost":{"total":0.5,"own":false}},"delta":"y"}"#,
        r#"{"type":"x","usage":{"input":1,"cost":{"total":0.5,"own":true}},"delta":"y"}"#,
        r#"{"ä😀\u00e4\"":"x","\ud83d":"y","a":{"b":null}}"#,
        "{}",
        "true",
    ];
    let mut shapes: Vec<Shape> = texts
        .iter()
        .filter_map(|text| Shape::new(text.as_bytes()))
        .collect();
    for values in [64, 65, 130] {
        let text = format!("{{\"n\":[{}0],\"type\":\"x\"}}", "7,".repeat(values - 2));
        shapes.extend(Shape::new(text.as_bytes()));
    }
    shapes.extend(Shape::new(
        format!("{{\"a\":\"{}\",\"b\":1,\"n\":\"x\"}}", "long ".repeat(810)).as_bytes(),
    ));
    shapes
}

const STRINGS: [&[u8]; 30] = [
    b"",
    b"a",
    b"two words",
    b"fifteen bytes..",
    b"exactly sixteen!",
    b"seventeen bytes..",
    b"0198-a36c-4b2e-9d1f-6a6bcb5b84d2-000",
    b"sixty-four bytes are all that is looked at to find what is ASCII",
    b"a text that is longer than that, so that only its end is looked for, then UTF-8: all of it is \xc3\xa4",
    "ä".as_bytes(),
    "fifteen bytes😀".as_bytes(),
    "sixteen and more €".as_bytes(),
    b"\\n",
    b"\\u00e9\\\"\\\\",
    b"\\ud83d\\ude00",
    b"\\ud83d",
    b"\\ude00\\ud83d",
    b"\\ud83d\\ud83d\\ude00",
    b"\\ud83d \\ude00",
    b"error",
    b"end",
    // and what is no string:
    b"\\x",
    b"\\u12g4",
    b"raw\ttab",
    b"\"",
    b"\\",
    b"\xff",
    b"cut \xf0\x9f\x98",
    b"half \xed\xa0\xbd",
    b"over \xc0\xaf",
];

const NUMBERS: [&[u8]; 25] = [
    b"0",
    b"7",
    b"12345678",
    b"1760000000000",
    b"-1",
    b"-0",
    b"1.5",
    b"-0.0",
    b"0.00300",
    b"2.9999999999999997e-05",
    b"1E+9",
    b"1e400",
    b"9223372036854775807",
    b"18446744073709551616",
    b"123456789012345678901234567890",
    // and what is no number:
    b"01",
    b"1.",
    b"-",
    b"1e",
    b"+1",
    b"1 2",
    b"NaN",
    b"-Infinity",
    b"",
    b"0x1",
];

const OTHERS: [&[u8]; 8] = [
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"[1,\"x\"]",
    b"{\"a\":1}",
    b"\"text\"",
    b"-5",
];

/// Runs a program: see [`step`](Maker::step) for what it can say.
pub struct Maker<'p> {
    program: &'p [u8],
    recorded: &'p [Shape],
    made_up: &'p [Shape],
    lines: Vec<Vec<u8>>,
    bytes: usize,
}

impl<'p> Maker<'p> {
    pub fn new(program: &'p [u8], recorded: &'p [Shape], made_up: &'p [Shape]) -> Self {
        Maker {
            program,
            recorded,
            made_up,
            lines: Vec::new(),
            bytes: 0,
        }
    }

    pub fn lines(mut self) -> Vec<Vec<u8>> {
        while !self.program.is_empty() && self.lines.len() < MAX_LINES && self.bytes < MAX_BYTES {
            self.step();
        }
        self.lines
    }

    /// The next byte of the program, 0 at its end.
    fn byte(&mut self) -> usize {
        match self.program.split_first() {
            Some((byte, rest)) => {
                self.program = rest;
                usize::from(*byte)
            }
            None => 0,
        }
    }

    fn take(&mut self, count: usize) -> &'p [u8] {
        let (taken, rest) = self.program.split_at(count.min(self.program.len()));
        self.program = rest;
        taken
    }

    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.lines.push(line);
    }

    /// One instruction: mostly one line.
    fn step(&mut self) {
        match self.byte() {
            // A shape with other values in up to three of its slots.
            op @ 0..160 => {
                let made_up = self.recorded.is_empty() || op >= 80;
                let shapes = if made_up { self.made_up } else { self.recorded };
                let which = self.byte();
                let line = self.filled(&shapes[which % shapes.len()], op % 4);
                self.push(line);
            }
            // All the shapes in turn, one value changed: more than are tried.
            op @ 160..176 => {
                let shapes = if op % 2 == 0 {
                    self.recorded
                } else {
                    self.made_up
                };
                for shape in shapes.iter().take(1 + op % 16) {
                    let line = self.filled(shape, 1);
                    self.push(line);
                }
            }
            // An earlier line with one byte other, less or more, or cut.
            op @ 176..208 => {
                let back = 1 + self.byte() % 8;
                let Some(mut line) = self
                    .lines
                    .len()
                    .checked_sub(back)
                    .map(|at| self.lines[at].clone())
                else {
                    return;
                };
                let at = (self.byte() << 8 | self.byte()) % (line.len() + 1);
                match op % 4 {
                    0 if at < line.len() => line[at] = self.byte() as u8,
                    1 if at < line.len() => drop(line.remove(at)),
                    2 => line.insert(at, self.byte() as u8),
                    _ => line.truncate(at),
                }
                self.push(line);
            }
            // Bytes as they are.
            op @ 208..224 => {
                let line = self.take(2 * (op % 16)).to_vec();
                self.push(line);
            }
            // An earlier line again.
            op @ 224..240 => {
                let again = self
                    .lines
                    .len()
                    .checked_sub(1 + op % 16)
                    .map(|at| self.lines[at].clone());
                self.lines.extend(again);
            }
            // Many shapes.
            op => {
                for key in 0..5 * (op % 16) {
                    self.push(format!("{{\"{key}\":{op},\"type\":\"x\"}}").into_bytes());
                }
            }
        }
    }

    /// The text with other values in some of its slots.
    fn filled(&mut self, shape: &Shape, changes: usize) -> Vec<u8> {
        let mut text = shape.text.clone();
        if shape.values.is_empty() {
            return text;
        }
        let mut chosen: Vec<usize> = (0..changes)
            .map(|_| self.byte() % shape.values.len())
            .collect();
        chosen.sort_unstable();
        chosen.dedup();
        // From the back, so that what is still to change stays where it is.
        for slot in chosen.into_iter().rev() {
            let Range { start, end } = shape.values[slot].clone();
            let quoted = start.checked_sub(1).map(|at| shape.text[at]) == Some(b'"');
            let how = self.byte();
            let new: &[u8] = match how {
                0..128 if quoted => STRINGS[how % STRINGS.len()],
                0..128 => NUMBERS[how % NUMBERS.len()],
                128..232 => self.take(how % 8 * 4 + how / 8 % 4),
                _ => {
                    let whole = if quoted {
                        start - 1..end + 1
                    } else {
                        start..end
                    };
                    text.splice(whole, OTHERS[how % OTHERS.len()].iter().copied());
                    continue;
                }
            };
            text.splice(start..end, new.iter().copied());
        }
        text
    }
}
