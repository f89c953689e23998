//! Numbers that headrace itself reads: token counts, costs, durations.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::json::{Kind, Value};

/// A number as JSON tells integers from others.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub enum Number {
    Int(i64),
    Float(f64),
}

/// Beyond this a float is no count any more; both backends leave larger numbers out of their arithmetic.
const LARGEST: i64 = 1 << 53;

impl Number {
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }

    /// A thousand times as much: seconds as milliseconds.
    pub fn thousandfold(self) -> Number {
        match self {
            Number::Int(value) => Number::Int(value * 1000),
            Number::Float(value) => Number::Float(value * 1000.0),
        }
    }

    pub fn write(self, out: &mut Vec<u8>) {
        let written = match self {
            Number::Int(value) => write!(out, "{value}"),
            Number::Float(value) => write!(out, "{value:?}"),
        };
        debug_assert!(written.is_ok());
    }
}

impl std::ops::Add for Number {
    type Output = Number;

    fn add(self, other: Number) -> Number {
        match (self, other) {
            (Number::Int(one), Number::Int(two)) => Number::Int(one.saturating_add(two)),
            _ => Number::Float(self.as_f64() + other.as_f64()),
        }
    }
}

#[inline]
pub fn is_sensible(number: i64) -> bool {
    (-LARGEST..=LARGEST).contains(&number)
}

/// A token count as printed: an integer of a sensible size, else None.
#[inline]
pub fn count(value: Option<Value<'_>>) -> Option<i64> {
    value?.as_i64().filter(|number| is_sensible(*number))
}

/// A cost, duration or other measure as printed: a number of a sensible size, else None.
pub fn price(value: Option<Value<'_>>) -> Option<Number> {
    let value = value?;
    if value.kind() != Kind::Number {
        return None;
    }
    if value.is_integer() {
        return count(Some(value)).map(Number::Int);
    }
    let number = value.as_f64()?;
    (number.abs() <= LARGEST as f64).then_some(Number::Float(number))
}

/// The sum of the counts that the wire printed; None if it printed none of them.
pub fn total<const N: usize>(values: [Option<Value<'_>>; N]) -> Option<i64> {
    values.into_iter().filter_map(count).reduce(|a, b| a + b)
}
