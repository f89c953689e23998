use super::*;

fn small(memory: u64) -> Live {
    Live::new(Limits {
        memory,
        ..Limits::default()
    })
}

/// Everything up to the end.
fn all(live: &Live, id: usize) -> Result<Vec<u8>, LiveError> {
    let mut bytes = Vec::new();
    loop {
        match live.take(id, 10_000)? {
            Taken::Bytes(more) => bytes.extend(more),
            Taken::Nothing => assert!(live.wait(&[id], Duration::from_secs(10))?),
            Taken::End => return Ok(bytes),
        }
    }
}

fn pattern(size: usize, seed: u32) -> Vec<u8> {
    (0..size as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8)
        .collect()
}

#[test]
fn what_is_written_arrives_in_order_from_memory_and_disk() {
    for memory in [0, 100_000, u64::MAX / 2] {
        let live = small(memory);
        let (reader, mut writer) = io::pipe().unwrap();
        let id = live.add(reader.as_fd(), "pipe", 10, true).unwrap();
        drop(reader);
        let sent = pattern(3_000_000, 1);
        // nobody takes anything, and the writer gets through
        for chunk in sent.chunks(70_001) {
            writer.write_all(chunk).unwrap();
        }
        drop(writer);
        assert_eq!(all(&live, id).unwrap(), sent, "memory limit {memory}");
        assert_eq!(live.waiting().unwrap(), (0, 0));
        assert_eq!(live.tail(id).unwrap(), sent[sent.len() - 10..]);
        assert_eq!(live.activity(id).unwrap().0, sent.len() as u64);
        assert_eq!(live.take(id, 1).unwrap(), Taken::End);
    }
}

#[test]
fn what_is_claimed_is_read_by_anyone_at_any_time_or_given_back() {
    for memory in [0, 100_000] {
        let live = small(memory);
        let (reader, mut writer) = io::pipe().unwrap();
        let id = live.add(reader.as_fd(), "pipe", 0, true).unwrap();
        let sent = pattern(3_000_000, 1);
        sent.chunks(70_001)
            .for_each(|chunk| writer.write_all(chunk).unwrap());
        drop(writer);
        let mut claims = Vec::new();
        loop {
            match live.claim(id, 10_000).unwrap() {
                Taken::Bytes(claim) => claims.push(claim),
                Taken::Nothing => assert!(live.wait(&[id], Duration::from_secs(10)).unwrap()),
                Taken::End => break,
            }
        }
        assert_eq!(live.waiting().unwrap().0, 0);
        let sizes: Vec<_> = claims.iter().map(|claim| claim.size() as usize).collect();
        // the last first, in another thread; and of some, nobody wants the bytes
        let reader = std::thread::spawn(move || {
            let mut at = 3_000_000;
            for (number, mut claim) in claims.into_iter().enumerate().rev() {
                let end = at;
                at -= claim.size() as usize;
                if number % 3 > 0 {
                    assert_eq!(claim.bytes().unwrap(), &sent[at..end]);
                }
            }
        });
        reader.join().unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 3_000_000);
        assert_eq!(live.waiting().unwrap(), (0, 0));
    }
}

#[test]
fn memory_is_bounded_and_shared() {
    let live = small(200_000);
    let mut writers = Vec::new();
    for seed in 0..20 {
        let (reader, mut writer) = io::pipe().unwrap();
        let id = live.add(reader.as_fd(), "pipe", 0, true).unwrap();
        writers.push(std::thread::spawn(move || {
            let sent = pattern(100_000, seed);
            sent.chunks(999)
                .for_each(|chunk| writer.write_all(chunk).unwrap());
            (id, sent)
        }));
    }
    let sent: Vec<_> = writers
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .collect();
    // What was written may be in the pipes still.
    let read = |(id, sent): &(usize, Vec<u8>)| live.activity(*id).unwrap().0 == sent.len() as u64;
    while !sent.iter().all(read) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (memory, spilled) = live.waiting().unwrap();
    // a piece that grows doubles
    assert!(memory <= 2 * 200_000 && spilled > 0, "{memory} {spilled}");
    for (id, sent) in sent.into_iter().rev() {
        assert_eq!(all(&live, id).unwrap(), sent);
    }
    assert_eq!(live.waiting().unwrap(), (0, 0));
}

#[test]
fn a_full_spill_file_is_an_error_after_all_that_was_read() {
    let live = Live::new(Limits {
        memory: 1000,
        spill: 100_000,
        spill_dir: None,
    });
    let (reader, mut writer) = io::pipe().unwrap();
    let id = live.add(reader.as_fd(), "pipe", 0, true).unwrap();
    drop(reader);
    let sent = pattern(4_000_000, 3);
    let copy = sent.clone();
    let writing = std::thread::spawn(move || writer.write_all(&copy));
    assert!(writing.join().unwrap().is_err()); // nobody reads any more
    let mut bytes = Vec::new();
    let error = loop {
        match live.take(id, 10_000) {
            Ok(Taken::Bytes(more)) => bytes.extend(more),
            Ok(Taken::Nothing) => assert!(live.wait(&[id], Duration::from_secs(10)).unwrap()),
            Ok(Taken::End) => panic!("it did not end well"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LiveError::Spill { .. }), "{error}");
    assert!(bytes.len() >= 100_000 - BLOCK.min(PIPE) / 4 || bytes.len() >= 1000);
    assert_eq!(bytes, sent[..bytes.len()]);
    assert!(live.take(id, 1).is_err());
}

#[test]
fn only_the_tail_is_kept_of_what_is_not_queued() {
    let live = small(0);
    let (reader, mut writer) = io::pipe().unwrap();
    let id = live.add(reader.as_fd(), "stderr", 5, false).unwrap();
    writer.write_all(b"one two").unwrap();
    while live.activity(id).unwrap().0 < 7 {
        std::thread::yield_now();
    }
    assert_eq!(live.take(id, 10).unwrap(), Taken::Nothing);
    live.keep(id, true).unwrap();
    writer.write_all(b" three").unwrap();
    drop(writer);
    assert_eq!(all(&live, id).unwrap(), b" three");
    assert_eq!(live.tail(id).unwrap(), b"three");
}

#[test]
fn news_wake_an_event_loop() {
    let live = small(1 << 20);
    let (reader, mut writer) = io::pipe().unwrap();
    let id = live.add(reader.as_fd(), "pipe", 0, true).unwrap();
    writer.write_all(b"early").unwrap();
    assert!(live.wait(&[id], Duration::from_secs(10)).unwrap());
    assert!(live.wake_descriptor().unwrap() >= 0);
    assert_eq!(live.ready().unwrap(), [id]);
    assert_eq!(live.ready().unwrap(), []);
    drop(writer);
    while live.ready().unwrap() != [id] {
        std::thread::yield_now();
    }
    assert_eq!(all(&live, id).unwrap(), b"early");
}

/// What is read of a stream that is lent, without waiting for the thread; None if there is nothing.
fn read_lent(live: &Live, id: usize) -> Option<Vec<u8>> {
    match live.take(id, BLOCK).unwrap() {
        Taken::Bytes(bytes) => Some(bytes),
        Taken::Nothing => None,
        Taken::End => panic!("it is not over"),
    }
}

#[test]
fn a_stream_that_is_lent_is_read_by_its_consumer_at_once() {
    let live = small(1 << 20);
    let (reader, mut writer) = io::pipe().unwrap();
    let id = live.add(reader.as_fd(), "pipe", 3, true).unwrap();
    let file = live.lend(id).unwrap().expect("nothing of it waits");
    assert!(live.lend(id).unwrap().is_none()); // once
    for n in 0..200 {
        let line = format!("line {n}\n").into_bytes();
        writer.write_all(&line).unwrap();
        assert_eq!(read_lent(&live, id), Some(line));
        assert_eq!(read_lent(&live, id), None);
    }
    assert_eq!(live.tail(id).unwrap(), b"99\n");
    drop(writer);
    while live.take(id, 1).unwrap() != Taken::End {}
    // the descriptor stays open for who waits for it
    assert_eq!(rustix::io::ioctl_fionread(&*file).unwrap(), 0);
    assert!(live.lend(id).unwrap().is_none());
}

#[test]
fn what_a_busy_consumer_leaves_in_a_pipe_that_is_lent_is_drained() {
    for sent in [pattern(10, 1), pattern(3_000_000, 2)] {
        let live = small(100_000);
        let (reader, mut writer) = io::pipe().unwrap();
        let id = live.add(reader.as_fd(), "pipe", 0, true).unwrap();
        let _file = live.lend(id).unwrap().expect("nothing of it waits");
        writer.write_all(&sent).unwrap(); // the consumer does nothing, and this gets through
        drop(writer);
        assert!(live.wait(&[id], Duration::from_secs(10)).unwrap());
        assert_eq!(all(&live, id).unwrap(), sent);
    }
}

#[test]
fn nothing_is_lost_between_a_consumer_that_borrows_and_the_thread() {
    let live = small(100_000);
    let (reader, mut writer) = io::pipe().unwrap();
    let id = live.add(reader.as_fd(), "pipe", 0, true).unwrap();
    let sent = pattern(2_000_000, 4);
    let copy = sent.clone();
    let writing = std::thread::spawn(move || {
        let mut at = 0;
        for round in 0.. {
            let size = [1, 50, 4000, 70_000][round % 4].min(copy.len() - at);
            writer.write_all(&copy[at..at + size]).unwrap();
            at += size;
            if at == copy.len() {
                return;
            }
            if round % 3 == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
    });
    let mut bytes = Vec::new();
    for round in 0.. {
        // the pause between loans would keep them rare
        live.with(id, |stream| stream.not_lent_before = None)
            .unwrap();
        let _ = live.lend(id).unwrap();
        match live.take(id, 10_000).unwrap() {
            Taken::Bytes(more) => bytes.extend(more),
            Taken::Nothing if round % 5 == 0 => live.give_back(id).unwrap(),
            Taken::Nothing if round % 7 == 0 => std::thread::sleep(Duration::from_millis(4)),
            Taken::Nothing => std::thread::yield_now(),
            Taken::End => break,
        }
    }
    writing.join().unwrap();
    assert_eq!(bytes, sent);
}

#[test]
fn a_regular_file_and_a_closed_intake_are_refused() {
    let live = Live::new(Limits::default());
    let file = tempfile::tempfile().unwrap();
    assert!(matches!(
        live.add(file.as_fd(), "file", 0, true),
        Err(LiveError::Open { .. })
    ));
    live.close();
    let (reader, _writer) = io::pipe().unwrap();
    assert!(matches!(
        live.add(reader.as_fd(), "pipe", 0, true),
        Err(LiveError::Gone)
    ));
}

#[test]
fn closing_lets_go_of_every_pipe() {
    let live = small(1 << 20);
    let (reader, mut writer) = io::pipe().unwrap();
    let id = live.add(reader.as_fd(), "pipe", 0, true).unwrap();
    let (other, mut unread) = io::pipe().unwrap();
    live.add(other.as_fd(), "pipe", 0, true).unwrap();
    drop((reader, other));
    live.remove(id).unwrap();
    assert!(writer.write_all(b"x").is_err()); // EPIPE
    drop(live);
    assert!(unread.write_all(b"x").is_err());
}

#[test]
fn the_space_of_the_spill_file_is_used_again() {
    const SIZE: u64 = 1 << 18;
    let mut spill = Spill::new(None, u64::MAX);
    let mut waiting = VecDeque::new();
    let mut highest = 0;
    // ten times what waits at any time; taken in another order than it came
    for round in 0..10 * REGION / SIZE * 4 {
        let (_, at) = spill.reserve(SIZE).unwrap();
        assert!(!waiting.contains(&at), "{at} is given out twice");
        waiting.push_back(at);
        highest = highest.max(at + SIZE);
        if waiting.len() as u64 * SIZE > 2 * REGION {
            let at = if round % 2 == 0 {
                waiting.pop_front()
            } else {
                waiting.remove(waiting.len() / 2)
            };
            if let Some(hole) = spill.release(at.unwrap(), SIZE) {
                hole.punch();
                spill.freed(&hole);
            }
        }
    }
    assert!(highest <= 8 * REGION, "{highest}");
    for at in waiting {
        if let Some(hole) = spill.release(at, SIZE) {
            hole.punch();
            spill.freed(&hole);
        }
    }
    assert_eq!(spill.live(), 0);
    use std::os::unix::fs::MetadataExt;
    let blocks = spill.file().unwrap().metadata().unwrap().blocks();
    assert!(blocks * 512 <= 4 * REGION, "{blocks}");
}
