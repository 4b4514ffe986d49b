//! Writes every target's samples to `corpus/<target>/sample-<n>`, where libFuzzer begins.

mod kv;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in terrace_tier::fuzz::TARGETS.iter().chain(terrace_engine::fuzz::TARGETS).chain(&kv::TARGETS)
    {
        let dir = corpus.join(target.name);
        std::fs::create_dir_all(&dir)?;
        for (n, sample) in (target.samples)().into_iter().enumerate() {
            std::fs::write(dir.join(format!("sample-{n}")), sample.bytes)?;
        }
    }
    Ok(())
}
