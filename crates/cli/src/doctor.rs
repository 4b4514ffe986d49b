//! `terrace doctor`: what an object store can do of what the engine needs, a line a capability, and a verdict.

use crate::instance::Fault;
use crate::{exit, output};
use clap::Args;
use serde_json::{Value, json};
use std::path::Path;
use terrace_engine::offline::doctor::{Outcome, Verdict, examine};
use terrace_io::object;
use terrace_io::real::world;

pub const AFTER_HELP: &str = "It puts a few objects below a prefix of its own, doctor-…, and deletes them. It changes nothing else, so it can be run on the \
                              store of a running instance.\n\nExit codes: 0 fit; 1 unfit; 2 wrong usage, or the store cannot be reached or written to; \
                              3 fit with restrictions, which the lines name";

#[derive(Args)]
pub struct Doctor {
    /// The object store: s3://bucket/prefix, gs://…, az://… or a directory
    #[arg(long)]
    object: String,
    /// URL of its server, if it is not the provider's own
    #[arg(long)]
    object_endpoint: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Returns the exit code.
pub fn run(doctor: &Doctor) -> Result<u8, Fault> {
    let unusable = |why: String| Fault::new(exit::UNUSABLE, why);
    let path = doctor.object.strip_prefix("file://").unwrap_or(&doctor.object);
    if !path.contains("://") && !Path::new(path).is_dir() {
        return Err(unusable(format!("{path} is no directory")));
    }
    let settings = object::Settings {
        endpoint: doctor.object_endpoint.clone(),
        ..object::Settings::new(&doctor.object)
    };
    let store = object::open(&settings).map_err(|error| unusable(error.to_string()))?;
    let found = examine(&store, &world()).map_err(unusable)?;
    let (code, verdict) = match found.verdict() {
        Verdict::Fit => (exit::SOUND, "fit"),
        Verdict::Restricted => (exit::INCOMPLETE, "fit with restrictions"),
        Verdict::Unfit => (exit::FAULTS, "unfit"),
    };
    let word = |outcome| match outcome {
        Outcome::Works => "works",
        Outcome::Note => "note",
        Outcome::Weaker => "weaker",
        Outcome::Fails => "FAILS",
    };
    if doctor.json {
        let finding = |one: &terrace_engine::offline::doctor::Finding| json!({"what": one.what, "outcome": word(one.outcome).to_lowercase(), "text": one.text});
        let findings: Vec<Value> = found.findings.iter().map(finding).collect();
        let value =
            json!({"store": store.describe(), "findings": findings, "verdict": verdict, "exit": code});
        output::text(&format!("{value:#}"));
        return Ok(code);
    }
    output::text(&format!("{:<16} {}", "store", store.describe()));
    for one in &found.findings {
        output::text(&format!("{:<16} {:<9} {}", one.what, word(one.outcome), one.text));
    }
    output::text(&format!("{:<16} {verdict}", "verdict"));
    Ok(code)
}
