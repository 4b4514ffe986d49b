//! `terrace kv top`: what a server does, in a terminal, from its `INFO`.

use super::client::{Address, Connection};
use crate::output;
use clap::Args;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Top {
    /// The server: [redis://[[user]:password@]]host:port
    #[arg(default_value = "127.0.0.1:6380")]
    server: Address,
    /// Print one sample, a name and a value a line, and exit
    #[arg(long)]
    once: bool,
    /// Seconds between two samples
    #[arg(long, default_value_t = 1.0)]
    interval: f64,
}

pub fn run(options: &Top) -> ExitCode {
    match watch(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(2)
        }
    }
}

/// The fields of `INFO` at a moment.
struct Sample {
    at: Instant,
    fields: BTreeMap<String, String>,
}

impl Sample {
    fn take(connection: &mut Connection) -> Result<Sample, String> {
        Ok(Sample { fields: connection.info()?, at: Instant::now() })
    }

    fn number(&self, name: &str) -> f64 {
        self.fields.get(name).and_then(|text| text.trim().parse().ok()).unwrap_or(0.0)
    }

    fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", |text| text.trim())
    }

    fn keys(&self) -> u64 {
        let databases = self.fields.iter().filter(|(name, value)| {
            name.strip_prefix("db").is_some_and(|rest| rest.parse::<u16>().is_ok())
                && value.starts_with("keys=")
        });
        let count = |value: &str| value.strip_prefix("keys=")?.split(',').next()?.parse::<u64>().ok();
        databases.filter_map(|(_, value)| count(value)).sum()
    }
}

/// What is shown: a name, a value, a unit.
fn lines(before: &Sample, now: &Sample) -> Vec<(&'static str, f64, &'static str)> {
    let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-3);
    let grown = |name: &str| (now.number(name) - before.number(name)).max(0.0);
    let share = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
    let (hits, misses) = (grown("keyspace_hits"), grown("keyspace_misses"));
    let mut lines = vec![
        ("commands_per_second", grown("total_commands_processed") / seconds, ""),
        ("received_bytes_per_second", grown("total_net_input_bytes") / seconds, "B"),
        ("sent_bytes_per_second", grown("total_net_output_bytes") / seconds, "B"),
        ("errors_per_second", grown("total_error_replies") / seconds, ""),
        ("hit_percent", share(hits, hits + misses), "%"),
        ("keys", now.keys() as f64, ""),
        ("memory_used_bytes", now.number("used_memory"), "B"),
        ("memory_process_bytes", now.number("mem_process").max(now.number("used_memory_rss")), "B"),
        ("memory_max_bytes", now.number("maxmemory"), "B"),
        ("evicted_per_second", grown("evicted_keys") / seconds, ""),
        ("expired_per_second", grown("expired_keys") / seconds, ""),
        ("clients", now.number("connected_clients"), ""),
        ("clients_blocked", now.number("blocked_clients"), ""),
        ("changes_since_save", now.number("rdb_changes_since_last_save"), ""),
    ];
    if now.fields.contains_key("tiering_storage") {
        let places =
            ["tiering_keys_known", "tiering_keys_fetched", "tiering_keys_absent", "tiering_keys_filtered"];
        let all: f64 = places.iter().map(|name| grown(name)).sum();
        lines.extend([
            ("found_in_memory_percent", share(grown(places[0]), all), "%"),
            ("found_in_storage_percent", share(grown(places[1]), all), "%"),
            ("absent_in_storage_percent", share(grown(places[2]), all), "%"),
            ("absent_by_filter_percent", share(grown(places[3]), all), "%"),
            ("storage_reads_per_second", grown("tiering_reads") / seconds, ""),
            ("storage_writes_per_second", grown("tiering_writes") / seconds, ""),
            ("coalescing_factor", grown("tiering_changes") / grown("tiering_rows").max(1.0), ""),
            ("dirty_keys", now.number("tiering_waiting_keys"), ""),
            ("dirty_bytes", now.number("tiering_waiting_bytes"), "B"),
            ("dirty_ms", now.number("tiering_dirty_ms"), "ms"),
        ]);
    }
    lines
}

/// A value for people.
fn shown(value: f64, unit: &str) -> String {
    let scaled = |step: f64, letters: [&str; 5]| {
        let power = if value < step { 0 } else { ((value.ln() / step.ln()) as usize).min(4) };
        match power {
            0 => format!("{value:.0}"),
            _ => format!("{:.1}{}", value / step.powi(power as i32), letters[power]),
        }
    };
    match unit {
        "B" => format!("{}B", scaled(1024.0, ["", "Ki", "Mi", "Gi", "Ti"])),
        "%" => format!("{value:.1} %"),
        "ms" => format!("{value:.0} ms"),
        _ if value.fract() != 0.0 && value < 100.0 => format!("{value:.2}"),
        _ => scaled(1000.0, ["", "k", "M", "G", "T"]),
    }
}

fn watch(options: &Top) -> Result<(), String> {
    let mut connection = Connection::open(&options.server)?;
    let interval = Duration::try_from_secs_f64(options.interval)
        .ok()
        .filter(|interval| !interval.is_zero())
        .ok_or("--interval is a number of seconds")?;
    let mut before = Sample::take(&mut connection)?;
    loop {
        std::thread::sleep(interval);
        let now = Sample::take(&mut connection)?;
        let lines = lines(&before, &now);
        if options.once {
            lines.iter().for_each(|(name, value, _)| output::text(&format!("{name} {value:.3}")));
            return Ok(());
        }
        let mut text = format!(
            "terrace kv {}  up {} s  {}  every {} s, Ctrl-C ends\n",
            options.server,
            now.text("uptime_in_seconds"),
            match now.text("tiering_storage") {
                "" => "data in memory alone".to_owned(),
                storage => format!("storage {storage}, {}", now.text("tiering_mode")),
            },
            options.interval
        );
        for (name, value, unit) in &lines {
            text.push_str(&format!("  {:<28} {:>12}\n", name.replace('_', " "), shown(*value, unit)));
        }
        let mut terminal = std::io::stdout();
        let clear = if terminal.is_terminal() { "\x1b[H\x1b[2J" } else { "" };
        // A terminal that is gone ends the view.
        if terminal.write_all(format!("{clear}{text}").as_bytes()).and_then(|()| terminal.flush()).is_err() {
            return Ok(());
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_shares_are_those_between_two_samples() {
        let sample = |at: Instant, pairs: &[(&str, &str)]| {
            let fields = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            Sample { at, fields }
        };
        let start = Instant::now();
        let before = sample(start, &[("total_commands_processed", "100"), ("keyspace_hits", "10")]);
        let fields = [
            ("total_commands_processed", "300"),
            ("keyspace_hits", "13"),
            ("keyspace_misses", "1"),
            ("db0", "keys=5,expires=0,avg_ttl=0"),
            ("db3", "keys=2,expires=0,avg_ttl=0"),
        ];
        let now = sample(start + Duration::from_secs(2), &fields);
        let lines = lines(&before, &now);
        let value = |wanted: &str| lines.iter().find(|(name, ..)| *name == wanted).unwrap().1;
        assert_eq!(value("commands_per_second"), 100.0);
        assert_eq!(value("hit_percent"), 75.0);
        assert_eq!(value("keys"), 7.0);
        assert!(lines.iter().all(|(name, ..)| !name.starts_with("dirty")));
    }

    #[test]
    fn values_have_units_for_people() {
        assert_eq!(shown(512.0, "B"), "512B");
        assert_eq!(shown(1536.0, "B"), "1.5KiB");
        assert_eq!(shown(2_500_000.0, ""), "2.5M");
        assert_eq!(shown(0.25, ""), "0.25");
    }
}
