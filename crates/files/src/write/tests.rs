use super::*;

fn upload() -> Upload {
    Upload { key: "f".into(), id: "1".into() }
}

/// Carries the actions out against a model of a store, in the order that `pick` chooses; the file's bytes, or the fault.
fn run(
    writes: &[usize],
    pick: &mut dyn FnMut(usize) -> usize,
    fails_at: Option<u32>,
) -> Result<Vec<u8>, Fault> {
    let whole: Vec<u8> = (0..writes.iter().sum::<usize>()).map(|i| (i % 251) as u8).collect();
    let mut writer = Writer::new("f".into(), false, None);
    let (mut taken, mut stored, mut parts) = (0u64, None, std::collections::BTreeMap::new());
    let mut aborted = false;
    let mut pending: Vec<Action> = Vec::new();
    let mut answers = std::collections::BTreeMap::new();
    let mut from = 0;
    let mut requests = writes.iter().enumerate();
    let mut next = requests.next();
    let mut committed = false;
    loop {
        let in_flight = pending.iter().filter(|a| matches!(a, Action::Send { .. })).count();
        assert!(in_flight <= IN_FLIGHT_MAX);
        let is_acknowledged = |request: usize| request == 0 || answers.contains_key(&(request as u64 - 1));
        let actions = match next {
            Some((request, len)) if is_acknowledged(request) => {
                taken += *len as u64;
                let actions = writer.write(request as u64, &whole[from..from + len]);
                from += len;
                next = requests.next();
                actions
            }
            None if !committed && is_acknowledged(writes.len()) => {
                committed = true;
                writer.commit(1000)
            }
            _ if pending.is_empty() => break,
            _ => {
                let at = pick(pending.len());
                match pending.swap_remove(at) {
                    Action::Put(body) => {
                        taken -= body.len() as u64;
                        stored = Some(body.to_vec());
                        writer.step(Step::Ended(Ok("v".into())))
                    }
                    Action::Begin => writer.step(Step::Begun(Ok(upload()))),
                    Action::Send { number, offset, body, .. } => {
                        taken -= body.len() as u64;
                        if fails_at == Some(number) {
                            writer.step(Step::Sent(Err(Fault::Unavailable("down".into()))))
                        } else {
                            let bytes = body.len() as u64;
                            parts.insert(number, body.to_vec());
                            writer.step(Step::Sent(Ok(UploadPart {
                                number,
                                offset,
                                bytes,
                                tag: String::new(),
                            })))
                        }
                    }
                    Action::Complete { parts: listed, .. } => {
                        assert!(UploadPart::check("f", &listed).is_ok());
                        stored = Some(listed.iter().flat_map(|part| parts[&part.number].clone()).collect());
                        writer.step(Step::Ended(Ok("v".into())))
                    }
                    _ => unreachable!(),
                }
            }
        };
        for action in actions {
            match action {
                Action::Answer { request, result } => {
                    assert!(answers.insert(request, result).is_none(), "request {request} is answered twice");
                }
                Action::Free(bytes) => taken -= bytes,
                Action::Abort(_) => aborted = true,
                other => pending.push(other),
            }
        }
    }
    assert_eq!(taken, 0, "room that is never given back");
    for request in (0..writes.len() as u64).chain([1000]) {
        assert!(answers.contains_key(&request), "request {request} is not answered");
    }
    match answers.remove(&1000) {
        Some(Ok(_)) => {
            assert!(!aborted && stored.as_ref() == Some(&whole));
            Ok(whole)
        }
        Some(Err(fault)) => {
            assert!(stored.is_none() && aborted);
            Err(fault)
        }
        None => unreachable!(),
    }
}

#[test]
fn a_file_of_any_length_is_stored_whole_in_whatever_order_uploads_end() {
    for writes in
        [vec![], vec![0], vec![5], vec![PART_BYTES], vec![PART_BYTES, 1], vec![3 << 20; 9], vec![20 << 20, 7]]
    {
        for turn in 0..3 {
            run(&writes, &mut |count| (turn * 7) % count, None).unwrap();
        }
    }
}

#[test]
fn a_part_that_fails_aborts_the_upload_and_answers_every_request() {
    for part in 0..3 {
        let fault = run(&[10 << 20, 10 << 20, 5 << 20], &mut |count| count - 1, Some(part)).unwrap_err();
        assert_eq!(fault, Fault::Unavailable("down".into()));
    }
}

#[test]
fn an_upload_that_begins_after_it_was_given_up_is_aborted() {
    let mut writer = Writer::new("f".into(), false, None);
    let begins = writer.write(1, &vec![0; PART_BYTES + 1]);
    assert!(begins.iter().any(|action| matches!(action, Action::Begin)));
    let freed: u64 =
        writer.abort().iter().map(|a| if let Action::Free(bytes) = a { *bytes } else { 0 }).sum();
    assert_eq!(freed, PART_BYTES as u64 + 1);
    let late = writer.step(Step::Begun(Ok(upload())));
    assert!(late.iter().any(|action| matches!(action, Action::Abort(_))));
}
