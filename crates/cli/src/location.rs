//! The arguments that say where an instance is.

use clap::Args;

/// Where the instance is.
#[derive(Args)]
pub struct Location {
    /// The configuration file (TOML), as terrace_config names it
    #[arg(long)]
    pub config: Option<std::path::PathBuf>,
    /// The volume's directory (in MariaDB by default the directory `terrace` in the data directory)
    #[arg(long)]
    pub volume: Option<String>,
    /// The object store: s3://bucket/prefix, gs://…, az://… or a directory
    #[arg(long)]
    pub object: Option<String>,
    /// URL of a server that is not the provider's own
    #[arg(long)]
    pub object_endpoint: Option<String>,
    /// The flash directory: look at the copies there, too
    #[arg(long)]
    pub flash: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Location {
    /// A volume alone, without its object store.
    pub fn of_volume(volume: &str) -> Location {
        let volume = Some(volume.to_string());
        Location { config: None, volume, object: None, object_endpoint: None, flash: None, json: false }
    }
}
