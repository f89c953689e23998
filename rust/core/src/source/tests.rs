use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn zst(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 1).unwrap()
}

fn stream() -> Vec<u8> {
    (0..40_000)
        .flat_map(|number| format!("{{\"type\":\"message\",\"n\":{number}}}\n").into_bytes())
        .collect()
}

/// What the decoder gives, and how it ends.
fn decode(data: &[u8], size: usize) -> (Vec<u8>, Result<(), SourceError>) {
    let mut decoder = Decoder::new("test");
    let mut out = Vec::new();
    let mut sink = |piece: &[u8]| {
        out.extend_from_slice(piece);
        Ok::<_, SourceError>(())
    };
    let mut result = data
        .chunks(size)
        .try_for_each(|chunk| decoder.push(chunk, &mut sink));
    if result.is_ok() {
        result = decoder.finish(&mut sink);
    }
    (out, result)
}

fn drain(mut source: Source) -> Result<Vec<u8>, SourceError> {
    let mut out = Vec::new();
    while source.step(&mut |piece: &[u8]| {
        out.extend_from_slice(piece);
        Ok::<_, SourceError>(())
    })? {}
    Ok(out)
}

fn packed() -> Vec<(&'static str, Vec<u8>)> {
    let stream = stream();
    let (one, two) = stream.split_at(stream.len() / 2);
    let skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd".to_vec();
    // A header with every optional field.
    let plain = gzip(two);
    let mut full = b"\x1f\x8b\x08\x1e\0\0\0\0\0\x03".to_vec();
    full.extend_from_slice(b"\x02\x00xxname\0comment\0cc");
    full.extend_from_slice(&plain[10..]);
    vec![
        ("plain", stream.clone()),
        ("gzip", gzip(&stream)),
        ("gzip members", [gzip(one), gzip(b""), full].concat()),
        ("gzip, padded", [gzip(&stream), vec![0; 5000]].concat()),
        ("zstd", zst(&stream)),
        (
            "zstd frames",
            [zst(one), zst(b""), skippable.clone(), zst(two)].concat(),
        ),
        ("zstd, skippable first", [skippable, zst(&stream)].concat()),
    ]
}

#[test]
fn packing_and_chunks_make_no_difference() {
    let stream = stream();
    for (what, packed) in packed() {
        for size in [1, 7, 1000, packed.len()] {
            let (out, result) = decode(&packed, size);
            result.unwrap();
            assert!(out == stream, "{what} by {size}");
        }
    }
}

#[test]
fn files_and_readers() {
    let stream = stream();
    let folder = std::env::temp_dir().join(format!("headrace-source-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (what, packed) in packed() {
        let path = folder.join("no-suffix");
        std::fs::write(&path, &packed).unwrap();
        assert!(
            drain(Source::open(&path).unwrap()).unwrap() == stream,
            "{what}"
        );
        let reader = Source::reader(std::io::Cursor::new(packed), "cursor");
        assert!(drain(reader).unwrap() == stream, "{what}");
    }
    let empty = folder.join("empty");
    std::fs::write(&empty, b"").unwrap();
    assert_eq!(drain(Source::open(&empty).unwrap()).unwrap(), b"");
    for path in [&folder, &folder.join("missing")] {
        assert!(matches!(Source::open(path), Err(SourceError::Open { .. })));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_only_looks_packed_is_left_alone() {
    let data: [&[u8]; 9] = [
        b"",
        b"\x1f",
        b"\x1f\x8b",
        b"\x1f\x8bx",
        b"\x28\xb5\x2f",
        b"(x",
        b"P*M",
        b"P*Mx",
        b"{}\n",
    ];
    for data in data {
        for size in [1, 2, 10] {
            let (out, result) = decode(data, size);
            result.unwrap();
            assert_eq!(out, data);
        }
    }
}

#[test]
fn what_could_be_read_comes_before_the_error() {
    let stream = stream();
    for packed in [gzip(&stream), zst(&stream)] {
        for size in [1, 1000, packed.len()] {
            let (out, result) = decode(&packed[..packed.len() - 12], size);
            assert!(matches!(result, Err(SourceError::Cut { .. })), "{result:?}");
            assert!(!out.is_empty() && stream.starts_with(&out));

            let (out, result) = decode(&[&packed[..], b"garbage"].concat(), size);
            assert!(
                matches!(result, Err(SourceError::Corrupt { .. })),
                "{result:?}"
            );
            assert!(out == stream);
        }
    }
    let mut wrong = gzip(&stream);
    let end = wrong.len();
    wrong[end - 6] ^= 1;
    assert!(matches!(
        decode(&wrong, 100).1,
        Err(SourceError::Corrupt { .. })
    ));
}

#[test]
fn a_crafted_file_takes_little_memory() {
    let zeros = vec![0; 1 << 26];
    for packed in [gzip(&zeros), zst(&zeros)] {
        let mut source = Source::reader(std::io::Cursor::new(packed), "bomb");
        let (mut most, mut sum) = (0, 0);
        while source
            .step(&mut |piece: &[u8]| {
                most = most.max(piece.len());
                sum += piece.len();
                Ok::<_, SourceError>(())
            })
            .unwrap()
        {}
        assert_eq!(sum, zeros.len());
        assert!(most <= decode::OUT);
    }
}
