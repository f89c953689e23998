//! The decoder against serde_json: both must accept the same texts and read the same values.
//!
//! Two differences are meant: serde_json refuses unpaired surrogate halves, and it stops at 128 levels.
#![no_main]

use headrace_core::json::{Kind, Tape, Value};
use libfuzzer_sys::fuzz_target;
use serde_json::Value as Peer;

const PEER_DEPTH: usize = 127;

fuzz_target!(|text: &[u8]| {
    let mut tape = Tape::new();
    let result = tape.parse(text);
    let peer = peer_of(text);
    match result {
        Ok(doc) => {
            check_strings(doc.root());
            match peer {
                Some(Ok(peer)) => assert!(same(doc.root(), &peer), "read {peer} otherwise"),
                Some(Err(error)) => assert!(doc.has_lone_surrogate(), "the peer refuses: {error}"),
                None => {}
            }
            assert!(Tape::new().parse_lax(text).is_ok());
        }
        Err(error) => {
            assert!(error.offset <= text.len());
            if let Some(Ok(peer)) = peer {
                panic!("refused ({error}), and the peer reads {peer}");
            }
            // Nothing to compare, but it must come back.
            let _ = tape.parse_lax(text);
        }
    }
});

/// What serde_json says, where it can say something.
fn peer_of(text: &[u8]) -> Option<serde_json::Result<Peer>> {
    let brackets = text
        .iter()
        .filter(|byte| matches!(byte, b'[' | b'{'))
        .count();
    // Its numbers of any size travel as an object with a key of its own.
    let private = text.windows(11).any(|window| window == b"$serde_json");
    (brackets <= PEER_DEPTH && !private).then(|| serde_json::from_slice(text))
}

fn same(value: Value<'_>, peer: &Peer) -> bool {
    match (value.kind(), peer) {
        (Kind::Null, Peer::Null) => true,
        (Kind::Bool, Peer::Bool(peer)) => value.as_bool() == Some(*peer),
        (Kind::Number, Peer::Number(peer)) => {
            let double: f64 = peer.as_str().parse().expect("a number");
            value.as_f64() == Some(double)
                && value.is_integer() == !peer.as_str().contains(['.', 'e', 'E'])
                && (!value.is_integer() || value.number() == Some(peer.as_str()))
                && value.as_u64()
                    == peer
                        .as_u64()
                        .or((value.number() == Some("-0")).then_some(0))
                && value.as_i64() == peer.as_i64()
        }
        (Kind::String, Peer::String(peer)) => value.text().as_deref() == Some(peer),
        (Kind::Array, Peer::Array(peer)) => {
            value.len() == peer.len()
                && value.items().zip(peer).all(|(item, peer)| same(item, peer))
        }
        (Kind::Object, Peer::Object(peer)) => {
            value.len() >= peer.len()
                && value
                    .entries()
                    .all(|(key, _)| peer.contains_key(&*key.lossy()))
                && peer.iter().all(|(key, peer)| {
                    value.first(key).is_some()
                        && value.get(key).is_some_and(|value| same(value, peer))
                })
        }
        _ => false,
    }
}

/// The ways to read a string agree with each other, unpaired halves or not.
fn check_strings(value: Value<'_>) {
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        pending.extend(value.items());
        pending.extend(value.entries().map(|(_, value)| value));
        let keys = value.entries().map(|(key, _)| key);
        for string in keys.chain(value.as_str()) {
            let lossy = string.lossy();
            let halves = string.halves();
            let wide = string.wtf8();
            if string.is_lossy() {
                assert!(halves.lead.is_some() || halves.trail.is_some() || halves.lossy);
                assert!(!string.eq(&lossy) && std::str::from_utf8(&wide).is_err());
                let ends = usize::from(halves.lead.is_some()) + usize::from(halves.trail.is_some());
                assert_eq!(halves.text.chars().count() + ends, lossy.chars().count());
            } else {
                assert_eq!(
                    (halves.lead, halves.trail, halves.lossy),
                    (None, None, false)
                );
                assert_eq!((&*halves.text, &*wide), (&*lossy, lossy.as_bytes()));
                assert!(string.eq(&lossy));
            }
        }
    }
}
