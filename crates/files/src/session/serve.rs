//! What each operation does: decodes it, has the catalogue or a worker do it, and encodes the answer.

use super::batch::{Batch, Item, put_read};
use super::client::{Client, Pending};
use super::commit;
use super::{LISTED_MAX, WRITERS_MAX, objects, status};
use crate::catalogue::{BlockId, Done, Fault, Read, Wants};
use crate::groups::Kept;
use crate::read::{Files, Outcome, Reply};
use crate::wire::{
    self, BATCH_MAX, FRAME_MAX, Fields, Frame, MAGIC, Malformed, Op, Put, VERSION, check_path, put_fault,
    status as code, status_of,
};
use crate::write::{Action, Step, Writer};
use std::sync::Arc;
use terrace_io::store::{Bytes, Listed};

/// Bytes of one frame of a listing.
const LIST_FRAME: usize = 256 << 10;

pub(super) type Decoded = Result<(), Malformed>;

/// What a turn's requests ask of the catalogue.
#[derive(Default)]
pub struct Turn {
    releases: Vec<BlockId>,
    reads: Vec<Read>,
    /// What clients read without a question.
    touched: Vec<BlockId>,
    unasked: u64,
}

impl Turn {
    /// Handles the requests that a client has sent.
    pub fn requests(&mut self, files: &Arc<Files>, client: &mut Client) {
        let input = std::mem::take(&mut client.input);
        while !client.closes || client.handled < input.len() {
            if !client.has_room() {
                client.is_paused = true;
                break;
            }
            let result = match wire::frame(&input[client.handled..]) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    client.handled += frame.bytes;
                    self.handle(files, client, frame)
                }
                Err(malformed) => Err(malformed),
            };
            if let Err(malformed) = result {
                Put::new(&mut client.output, 0, code::PROTOCOL).text(&malformed.to_string());
                client.closes = true;
                break;
            }
        }
        client.input = input;
    }

    /// Does what the catalogue was asked for; the answers that it has at once.
    pub fn carry_out(self, files: &Files) -> Vec<Done> {
        if self.releases.is_empty() && self.reads.is_empty() && self.touched.is_empty() {
            return Vec::new();
        }
        let work = |catalogue: &mut crate::catalogue::Catalogue, now| {
            self.releases.into_iter().for_each(|block| catalogue.release(block));
            catalogue.touched(self.touched, self.unasked);
            self.reads.into_iter().for_each(|read| catalogue.begin(read, now));
        };
        files.with(work).1
    }

    fn handle(&mut self, files: &Arc<Files>, client: &mut Client, frame: Frame<'_>) -> Decoded {
        let op = Op::of(frame.kind).ok_or(Malformed("its operation is not known"))?;
        if !client.has_greeted && op != Op::Hello {
            return Err(Malformed("the first request is not a greeting"));
        }
        if client.pending.contains_key(&frame.request) {
            return Err(Malformed("its id is that of a request without an answer"));
        }
        let mut fields = Fields(frame.fields);
        let request = frame.request;
        match op {
            Op::Hello => hello(files, client, request, &mut fields),
            Op::Read => self.read(files, client, request, &mut fields),
            Op::ReadMany => self.read_many(files, client, request, &mut fields, Wants::Bytes),
            Op::Warm => self.read_many(files, client, request, &mut fields, Wants::Warm),
            Op::Stat => self.stat(client, request, &mut fields),
            Op::Release => self.release(client, &mut fields),
            Op::Touch => self.touch(&mut fields),
            Op::List => list(files, client, request, &mut fields),
            Op::Delete => delete(files, client, request, &mut fields),
            Op::Put => put(files, client, request, &mut fields),
            Op::OpenWrite => open_write(files, client, request, false, &mut fields),
            Op::OpenInGroup => open_write(files, client, request, true, &mut fields),
            Op::BeginGroup | Op::ResumeGroup | Op::CommitGroup | Op::AbortGroup => {
                commit::group(files, client, request, op, &mut fields)
            }
            Op::MapObjects
            | Op::CreateObject
            | Op::SealObject
            | Op::GetObject
            | Op::ReleaseObjects
            | Op::DeleteObject => objects::handle(files, client, request, op, &mut fields),
            Op::Pin | Op::Unpin | Op::Pins => super::pin::pin(files, client, request, op, &mut fields),
            Op::Write | Op::Commit | Op::Abort => write(files, client, request, op, &mut fields),
            Op::Status => {
                fields.end()?;
                let text = status::json(files);
                Put::new(&mut client.output, request, code::OK).text(&text);
                Ok(())
            }
            Op::Evict => {
                let prefix = fields.text()?;
                fields.end()?;
                let forgotten = files.tell(|catalogue, _| catalogue.forget(prefix));
                let mut count = forgotten.len() as u64;
                if let Some(flash) = &files.flash {
                    // A file of which only flash knows is found by its whole path.
                    if !forgotten.iter().any(|(path, _)| **path == *prefix) && flash.seems_to_have(prefix) {
                        flash.forget(prefix);
                        count += 1;
                    }
                    forgotten.iter().for_each(|(path, length)| flash.forget_all(path, *length));
                }
                if let Some(front) = files.front() {
                    front.evicted(prefix);
                }
                files.hold(files.pins.evicted(prefix));
                Put::new(&mut client.output, request, code::OK).u64(count);
                Ok(())
            }
        }
    }

    /// A read as the fields say, or why it is refused.
    fn decode(
        client: &Client,
        request: u64,
        item: u32,
        wants: Wants,
        fields: &mut Fields<'_>,
    ) -> Result<Result<Read, Fault>, Malformed> {
        let path = fields.text()?;
        let (offset, length, expected) = match wants {
            Wants::Stat => (0, 0, None),
            _ => (fields.u64()?, fields.u64()?, fields.some_text()?),
        };
        let read = || Read {
            client: client.id,
            request,
            item,
            wants,
            path: path.into(),
            offset,
            length,
            expected,
            since: 0,
        };
        Ok(check_path(path).map(|()| read()))
    }

    fn is_over_its_share(files: &Files, client: &Client) -> Option<Fault> {
        let most = files.arena.len() / 2;
        (client.leased_bytes > most).then(|| {
            Fault::Busy(format!("this client holds leases on more than {most} bytes: release some first"))
        })
    }

    fn read(&mut self, files: &Files, client: &mut Client, request: u64, fields: &mut Fields<'_>) -> Decoded {
        let read = Turn::decode(client, request, 0, Wants::Bytes, fields)?;
        fields.end()?;
        match read.and_then(|read| Turn::is_over_its_share(files, client).map_or(Ok(read), Err)) {
            Err(fault) => put_fault(&mut client.output, request, &fault),
            Ok(read) => {
                client.pending.insert(request, Pending::Read);
                self.reads.push(read);
            }
        }
        Ok(())
    }

    fn stat(&mut self, client: &mut Client, request: u64, fields: &mut Fields<'_>) -> Decoded {
        let read = Turn::decode(client, request, 0, Wants::Stat, fields)?;
        fields.end()?;
        match read {
            Err(fault) => put_fault(&mut client.output, request, &fault),
            Ok(read) => {
                client.pending.insert(request, Pending::Stat);
                self.reads.push(read);
            }
        }
        Ok(())
    }

    fn read_many(
        &mut self,
        files: &Files,
        client: &mut Client,
        request: u64,
        fields: &mut Fields<'_>,
        wants: Wants,
    ) -> Decoded {
        let count = fields.count(24)?;
        if count == 0 || count > BATCH_MAX {
            return Err(Malformed("a batch has 1 to 1000 files"));
        }
        if wants == Wants::Bytes
            && let Some(fault) = Turn::is_over_its_share(files, client)
        {
            put_fault(&mut client.output, request, &fault);
            return Ok(());
        }
        let mut batch = Batch::new(count);
        for item in 0..count as u32 {
            match Turn::decode(client, request, item, wants, fields)? {
                Ok(read) => self.reads.push(read),
                Err(fault) => {
                    batch.add(request, item, Err(fault), &mut client.output);
                }
            }
        }
        fields.end()?;
        if !batch.is_over() {
            client.pending.insert(request, Pending::Batch(batch));
        }
        Ok(())
    }

    fn release(&mut self, client: &mut Client, fields: &mut Fields<'_>) -> Decoded {
        for _ in 0..fields.count(4)? {
            let block = fields.u32()?;
            if !client.let_go(block) {
                return Err(Malformed("it releases a lease that the client has not"));
            }
            self.releases.push(block);
        }
        fields.end()
    }

    fn touch(&mut self, fields: &mut Fields<'_>) -> Decoded {
        self.unasked += u64::from(fields.u32()?);
        for _ in 0..fields.count(4)? {
            self.touched.push(fields.u32()?);
        }
        fields.end()
    }

    /// Answers a read.
    pub fn deliver(client: &mut Client, request: u64, item: u32, answer: Item) {
        let is_over = match (client.pending.get_mut(&request), answer) {
            (Some(Pending::Batch(batch)), answer) => batch.add(request, item, answer, &mut client.output),
            (_, Err(fault)) => {
                put_fault(&mut client.output, request, &fault);
                true
            }
            (Some(Pending::Stat), Ok((meta, _))) => {
                Put::new(&mut client.output, request, code::OK).text(&meta.version).u64(meta.length);
                true
            }
            (_, Ok((meta, parts))) => {
                put_read(&mut Put::new(&mut client.output, request, code::OK), &meta, &parts);
                true
            }
        };
        if is_over {
            client.pending.remove(&request);
        }
    }

    /// A step of a file that is written has ended.
    pub fn stepped(files: &Arc<Files>, client: &mut Client, handle: u64, step: Step) {
        let Some(mut writer) = client.writers.remove(&handle) else {
            // A file that was kept belongs to its group, which the end of its client has aborted.
            if let Step::Begun(Ok(upload)) = step {
                files.submit(Box::new(move |files| files.store.abort(&upload)));
            }
            return;
        };
        let is_ended = matches!(step, Step::Ended(_));
        let actions = writer.step(step);
        Turn::write(files, client, handle, &writer, actions);
        if !is_ended {
            client.writers.insert(handle, writer);
        }
    }

    /// Carries out what a writer asks for.
    pub fn write(
        files: &Arc<Files>,
        client: &mut Client,
        handle: u64,
        writer: &Writer,
        actions: Vec<Action>,
    ) {
        let (id, creates) = (client.id, writer.creates);
        let step = move |files: &Files, step: Step| {
            files.reply(Reply { client: id, request: handle, outcome: Outcome::Written(step) });
        };
        for action in actions {
            let path = writer.path.clone();
            match action {
                Action::Free(bytes) => files.bodies.give_back(bytes),
                Action::Abort(upload) => files.submit(Box::new(move |files| files.store.abort(&upload))),
                Action::Begin => {
                    files.submit(Box::new(move |files| step(files, Step::Begun(files.store.begin(&path)))))
                }
                Action::Send { upload, number, offset, body } => files.submit(Box::new(move |files| {
                    let sent = files.store.part(&upload, number, offset, &body);
                    files.bodies.give_back(body.len() as u64);
                    step(files, Step::Sent(sent));
                })),
                Action::Put(body) => files.submit(Box::new(move |files| {
                    let bytes = body.len() as u64;
                    let put = files.put(&path, body, creates);
                    files.bodies.give_back(bytes);
                    step(files, Step::Ended(put));
                })),
                Action::Keep(kept) => {
                    let group = writer.group.unwrap_or_default();
                    files.submit(Box::new(move |files| {
                        let bytes = if let Kept::Whole(body) = &kept { body.len() as u64 } else { 0 };
                        let result = files.groups.keep(group, &path, creates, kept).map(|()| "".into());
                        files.bodies.give_back(bytes);
                        // An upload that is not kept is the writer's, which aborts it.
                        step(files, Step::Ended(result.map_err(|(fault, _)| fault)));
                    }));
                }
                Action::Complete { upload, parts } => files.submit(Box::new(move |files| {
                    let completed = files.store.complete(&upload, &parts, creates);
                    files.changed(&path);
                    step(files, Step::Ended(completed.map(|version| version.0.into())));
                })),
                Action::Answer { request, result } => {
                    client.pending.remove(&request);
                    match result {
                        Ok(version) => {
                            Put::new(&mut client.output, request, code::OK)
                                .text(version.as_deref().unwrap_or_default());
                        }
                        Err(fault) => put_fault(&mut client.output, request, &fault),
                    }
                }
            }
        }
    }
}

impl Files {
    /// The file has another content now, or none.
    pub fn changed(&self, path: &Arc<str>) {
        self.changed_elsewhere(path);
        if let Some(peers) = self.peers() {
            peers.wrote(path);
        }
    }

    /// As `changed`, by another node, which has told this one.
    pub fn changed_elsewhere(&self, path: &Arc<str>) {
        self.tell(|catalogue, now| catalogue.written(path, now));
        if let Some(flash) = &self.flash {
            flash.forget(path);
        }
        if let Some(front) = self.front() {
            front.changed(path);
        }
        if let Some(next) = self.pins.changed(path) {
            self.hold(next);
        }
    }

    /// Puts a whole file. Even a put that failed may have taken effect.
    pub(super) fn put(&self, path: &Arc<str>, body: Bytes, creates: bool) -> Result<Arc<str>, Fault> {
        let result = self.store.put(path, body, creates);
        self.changed(path);
        result.map(|version| version.0.into())
    }
}

fn hello(files: &Files, client: &mut Client, request: u64, fields: &mut Fields<'_>) -> Decoded {
    if client.has_greeted || fields.u32()? != MAGIC {
        return Err(Malformed("it is not a greeting"));
    }
    let (version, target) = (fields.u32()?, fields.text()?);
    fields.end()?;
    let store = files.store.name();
    if version != VERSION {
        let message =
            format!("the client speaks version {version} of the protocol, the daemon version {VERSION}");
        Put::new(&mut client.output, request, code::PROTOCOL).text(&message);
        client.closes = true;
        return Ok(());
    }
    if !target.is_empty() && target.trim_end_matches('/') != store.trim_end_matches('/') {
        let message = format!("this daemon serves {store}, not {target}");
        put_fault(&mut client.output, request, &Fault::Invalid(message));
        client.closes = true;
        return Ok(());
    }
    client.has_greeted = true;
    let mut out = Vec::new();
    Put::new(&mut out, request, code::OK)
        .u32(VERSION)
        .u64(files.arena.mapped())
        .u32(crate::catalogue::BLOCK_BYTES as u32)
        .u32(FRAME_MAX as u32)
        .u32(BATCH_MAX as u32)
        .u64(files.arena.len())
        .u64(files.index.sets())
        .u64(files.index.seed())
        .text(&store);
    // The first bytes that this client is sent: its socket has room for them.
    match crate::unix::send_with_fd(&client.stream, &out, files.arena.fd()) {
        Ok(sent) => client.output.extend_from_slice(&out[sent..]),
        Err(_) => client.closes = true,
    }
    Ok(())
}

/// Has a worker answer the request with frames.
fn answer_later(
    files: &Files,
    client: &mut Client,
    request: u64,
    work: impl FnOnce(&Files, &mut Vec<u8>) + Send + 'static,
) {
    client.pending.insert(request, Pending::Job);
    let id = client.id;
    files.submit(Box::new(move |files| {
        let mut frames = Vec::new();
        work(files, &mut frames);
        files.reply(Reply { client: id, request, outcome: Outcome::Frames(frames) });
    }));
}

fn list(files: &Files, client: &mut Client, request: u64, fields: &mut Fields<'_>) -> Decoded {
    let (folder, recursive): (Arc<str>, bool) = (fields.text()?.into(), fields.u8()? != 0);
    fields.end()?;
    if !folder.is_empty()
        && let Err(fault) = check_path(&folder)
    {
        put_fault(&mut client.output, request, &fault);
        return Ok(());
    }
    answer_later(files, client, request, move |files, out| {
        match files.store.list(&folder, recursive, LISTED_MAX) {
            Err(fault) => put_fault(out, request, &fault),
            Ok(listed) => put_listing(out, request, &listed),
        }
    });
    Ok(())
}

fn put_listing(out: &mut Vec<u8>, request: u64, listed: &[Listed]) {
    let mut rest = listed;
    loop {
        let mut size = 0;
        let fits = |listed: &&Listed| {
            size += 32
                + match listed {
                    Listed::Folder(name) | Listed::Object { key: name, .. } => name.len(),
                };
            size <= LIST_FRAME
        };
        let (now, later) = rest.split_at(rest.iter().take_while(fits).count());
        rest = later;
        let mut frame = Put::new(out, request, if rest.is_empty() { code::OK } else { code::MORE });
        frame.u32(now.len() as u32);
        for one in now {
            match one {
                Listed::Folder(name) => frame.u8(0).text(name).u64(0).u64(0),
                Listed::Object { key, length, modified_ms } => {
                    frame.u8(1).text(key).u64(*length).u64(*modified_ms)
                }
            };
        }
        drop(frame);
        if rest.is_empty() {
            return;
        }
    }
}

fn delete(files: &Files, client: &mut Client, request: u64, fields: &mut Fields<'_>) -> Decoded {
    let count = fields.count(4)?;
    if count > BATCH_MAX {
        return Err(Malformed("a batch has 1 to 1000 files"));
    }
    let paths = (0..count).map(|_| fields.text().map(Arc::<str>::from)).collect::<Result<Vec<_>, _>>()?;
    fields.end()?;
    answer_later(files, client, request, move |files, out| {
        let mut frame = Put::new(out, request, code::OK);
        frame.u32(paths.len() as u32);
        for path in paths {
            let deleted = check_path(&path).and_then(|()| files.store.delete(&path));
            files.changed(&path);
            match deleted {
                Ok(()) => frame.u8(code::OK).text(""),
                Err(fault) => frame.u8(status_of(&fault)).text(&fault.to_string()),
            };
        }
    });
    Ok(())
}

fn put(files: &Files, client: &mut Client, request: u64, fields: &mut Fields<'_>) -> Decoded {
    let (path, creates): (Arc<str>, bool) = (fields.text()?.into(), fields.u8()? != 0);
    let body = Bytes::copy_from_slice(fields.0);
    let bytes = body.len() as u64;
    if let Err(fault) = check_path(&path).and_then(|()| room_for(files, bytes)) {
        put_fault(&mut client.output, request, &fault);
        return Ok(());
    }
    answer_later(files, client, request, move |files, out| {
        let result = files.put(&path, body, creates);
        files.bodies.give_back(bytes);
        match result {
            Ok(version) => drop(Put::new(out, request, code::OK).text(&version)),
            Err(fault) => put_fault(out, request, &fault),
        }
    });
    Ok(())
}

fn room_for(files: &Files, bytes: u64) -> Result<(), Fault> {
    if files.bodies.try_take(bytes) {
        return Ok(());
    }
    let most = files.bodies.bytes_max();
    Err(Fault::Busy(format!("more than {most} bytes are being written or received: try again later")))
}

fn open_write(
    files: &Files,
    client: &mut Client,
    request: u64,
    in_group: bool,
    fields: &mut Fields<'_>,
) -> Decoded {
    let group = if in_group { Some(commit::name_of(fields.text()?)?) } else { None };
    let (path, creates) = (fields.text()?, fields.u8()? != 0);
    fields.end()?;
    let checked = match client.writers.len() < WRITERS_MAX {
        true => {
            check_path(path).and_then(|()| group.map_or(Ok(()), |group| files.groups.check(group, client.id)))
        }
        false => Err(Fault::Busy(format!("this client writes {WRITERS_MAX} files, which is the limit"))),
    };
    match checked {
        Err(fault) => put_fault(&mut client.output, request, &fault),
        Ok(()) => {
            // Unique, as the ids of a client's requests in flight are, and those of its open files.
            if client.writers.insert(request, Writer::new(path.into(), creates, group)).is_some() {
                return Err(Malformed("its id is that of a file being written"));
            }
            Put::new(&mut client.output, request, code::OK).u64(request);
        }
    }
    Ok(())
}

fn write(files: &Arc<Files>, client: &mut Client, request: u64, op: Op, fields: &mut Fields<'_>) -> Decoded {
    let handle = fields.u64()?;
    let Some(mut writer) = client.writers.remove(&handle) else {
        let message =
            "no such file is being written: it was committed, or failed and was given up".to_string();
        put_fault(&mut client.output, request, &Fault::Invalid(message));
        return Ok(());
    };
    client.pending.insert(request, Pending::Job);
    let actions = match op {
        Op::Write => match room_for(files, fields.0.len() as u64) {
            Ok(()) => writer.write(request, fields.0),
            // The client may try this write again.
            Err(fault) => vec![Action::Answer { request, result: Err(fault) }],
        },
        Op::Commit => writer.commit(request),
        _ => {
            let mut actions = writer.abort();
            actions.push(Action::Answer { request, result: Ok(None) });
            Turn::write(files, client, handle, &writer, actions);
            return fields.end();
        }
    };
    Turn::write(files, client, handle, &writer, actions);
    if writer.is_open() {
        client.writers.insert(handle, writer);
    }
    Ok(())
}
