//! Requests about memory objects.
//!
//! What needs flash, making an object's file and copying an object there to make room, is a worker's; the request goes on here when that has ended.

use super::client::{Client, Pending};
use super::serve::Decoded;
use crate::catalogue::Fault;
use crate::objects::{Answer, Created, Given, Place};
use crate::read::{Files, Outcome, Reply};
use crate::wire::{Fields, Malformed, Op, Put, put_fault, status as code};
use std::sync::Arc;
use terrace_io::clock::Nanos;

pub fn handle(
    files: &Arc<Files>,
    client: &mut Client,
    request: u64,
    op: Op,
    fields: &mut Fields<'_>,
) -> Decoded {
    let now = files.world.clock.now();
    match op {
        Op::MapObjects => {
            fields.end()?;
            return map(files, client, request);
        }
        Op::ReleaseObjects => {
            for _ in 0..fields.count(8)? {
                if !files.objects.lock().release(fields.u64()?, client.id) {
                    return Err(Malformed("it releases an object that the client has not"));
                }
            }
            remove_dropped(files);
            return fields.end();
        }
        _ => {}
    }
    let name: Arc<str> = fields.text()?.into();
    match op {
        Op::CreateObject => {
            let (len, at_once) = (fields.u64()?, fields.u8()? & 1 == 1);
            fields.end()?;
            create(files, client, request, name, len, at_once);
        }
        Op::SealObject => {
            fields.end()?;
            match files.objects.lock().seal(&name, client.id, now) {
                Err(fault) => put_fault(&mut client.output, request, &fault),
                Ok(answers) => {
                    answers.into_iter().for_each(|answer| deliver(files, answer));
                    Put::new(&mut client.output, request, code::OK).text("");
                }
            }
        }
        Op::GetObject => {
            let wait_ms = fields.u64()?;
            fields.end()?;
            get(files, client, request, &name, wait_ms, now);
        }
        _ => {
            fields.end()?;
            match files.objects.lock().delete_by(&name, client.id) {
                Err(fault) => put_fault(&mut client.output, request, &fault),
                Ok(()) => drop(Put::new(&mut client.output, request, code::OK).text("")),
            }
        }
    }
    remove_dropped(files);
    Ok(())
}

/// The arena of objects. The descriptor comes with the first byte of the answer, so nothing else may be on its way.
fn map(files: &Files, client: &mut Client, request: u64) -> Decoded {
    if client.unsent() > 0 || !client.pending.is_empty() {
        return Err(Malformed("it asks for the memory of objects while other answers are on their way"));
    }
    let mut out = Vec::new();
    let arena = &files.object_bytes.arena;
    Put::new(&mut out, request, code::OK).u64(arena.len());
    match crate::unix::send_with_fd(&client.stream, &out, arena.fd()) {
        Ok(sent) => client.output.extend_from_slice(&out[sent..]),
        Err(_) => client.closes = true,
    }
    Ok(())
}

fn put_given(files: &Files, out: &mut Vec<u8>, request: u64, given: Given) {
    let path = match given.place {
        Place::Memory(_) => None,
        Place::Flash => files.object_bytes.path(given.id),
    };
    let path = path.as_ref().and_then(|path| path.to_str()).unwrap_or_default();
    let offset = if let Place::Memory(extent) = given.place { extent.offset } else { 0 };
    Put::new(out, request, code::OK).u64(given.id).u64(offset).u64(given.len).text(path);
}

/// An answer to a get that waited.
pub fn deliver(files: &Files, answer: Answer) {
    let Answer { client, request, result } = answer;
    let mut frames = Vec::new();
    match result {
        Ok(given) => put_given(files, &mut frames, request, given),
        Err(fault) => put_fault(&mut frames, request, &fault),
    }
    files.reply(Reply { client, request, outcome: Outcome::Frames(frames) });
}

fn get(files: &Files, client: &mut Client, request: u64, name: &str, wait_ms: u64, now: Nanos) {
    let mut objects = files.objects.lock();
    match objects.get(name, client.id, now) {
        Some(Ok(given)) => put_given(files, &mut client.output, request, given),
        Some(Err(fault)) => put_fault(&mut client.output, request, &fault),
        None if wait_ms == 0 => put_fault(&mut client.output, request, &Fault::Absent),
        None => {
            let until = now.saturating_add(wait_ms.saturating_mul(1_000_000));
            match objects.wait(name, client.id, request, until) {
                Ok(()) => drop(client.pending.insert(request, Pending::Job)),
                Err(fault) => put_fault(&mut client.output, request, &fault),
            }
        }
    }
}

pub fn create(
    files: &Arc<Files>,
    client: &mut Client,
    request: u64,
    name: Arc<str>,
    len: u64,
    at_once: bool,
) {
    let now = files.world.clock.now();
    let created = files.objects.lock().create(&name, len, at_once, client.id, now);
    let id = client.id;
    match created {
        Err(fault) => put_fault(&mut client.output, request, &fault),
        Ok(Created::Made(given @ Given { place: Place::Memory(_), .. })) => {
            put_given(files, &mut client.output, request, given);
        }
        Ok(Created::Made(given)) => {
            client.pending.insert(request, Pending::Job);
            files.submit(Box::new(move |files| {
                let made = files.object_bytes.create(given.id, len);
                let mut frames = Vec::new();
                match made {
                    Ok(()) => put_given(files, &mut frames, request, given),
                    Err(fault) => {
                        let mut objects = files.objects.lock();
                        let _ = objects.delete(&name);
                        objects.release(given.id, id);
                        put_fault(&mut frames, request, &fault);
                    }
                }
                // Its client may have ended meanwhile, and the object with it.
                if !files.objects.lock().has(given.id) {
                    files.object_bytes.remove(given.id);
                }
                files.reply(Reply { client: id, request, outcome: Outcome::Frames(frames) });
            }));
        }
        Ok(Created::After(spill)) => {
            client.pending.insert(request, Pending::Job);
            files.submit(Box::new(move |files| {
                let written = files.object_bytes.spill(spill);
                files.objects.lock().spilled(spill, written.is_ok());
                remove_dropped(files);
                let outcome = match written {
                    Ok(()) => Outcome::ObjectRoom { name, len, at_once },
                    Err(fault) => {
                        let mut frames = Vec::new();
                        put_fault(&mut frames, request, &fault);
                        Outcome::Frames(frames)
                    }
                };
                files.reply(Reply { client: id, request, outcome });
            }));
        }
    }
}

/// Files of objects that are gone.
pub fn remove_dropped(files: &Files) {
    let dropped = std::mem::take(&mut files.objects.lock().dropped);
    if !dropped.is_empty() {
        files.submit(Box::new(move |files| dropped.into_iter().for_each(|id| files.object_bytes.remove(id))));
    }
}
