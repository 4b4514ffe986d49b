//! `terrace convert`: prints the SQL that moves the InnoDB tables of schemas to Terrace, with the foreign keys among them.
//!
//! It is SQL, run by the client that an operator has, so that no password, option file or TLS setting is read here. What has been done is recorded in a table of the
//! first schema: after an error or a crash the same statements go on.

use crate::exit;
use clap::Args;
use std::process::ExitCode;

pub const AFTER_HELP: &str = "Pipe it to the server's client: terrace convert app | mariadb. Each step is shown before it runs. If it ends early, run it again: it goes \
     on. Nothing is changed if a table has a full-text or spatial index, or if a foreign key leads out of the schemas.\n\nExit codes: 0 printed; 2 a name \
     cannot be used";

const SQL: &str = include_str!("convert.sql");

#[derive(Args)]
pub struct Convert {
    /// Schemas whose InnoDB tables are moved; foreign keys may lead from one to another
    #[arg(required = true)]
    schemas: Vec<String>,
}

/// A name that can stand in a list of names, within a string, and between backquotes.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| !matches!(c, ',' | '\'' | '`' | '\\') && !c.is_control();
    !name.is_empty() && name.chars().count() <= 64 && name.chars().all(is_plain)
}

fn text(schemas: &[String]) -> Result<String, String> {
    if let Some(name) = schemas.iter().find(|name| !is_plain(name)) {
        return Err(format!(
            "`{name}` cannot be used here: it is empty, longer than 64 characters, or has a comma, a quote or a backslash"
        ));
    }
    let first = schemas.first().map_or("", String::as_str);
    Ok(format!("USE `{first}`;\nSET @terrace_convert_schemas = '{}';\n{SQL}", schemas.join(",")))
}

pub fn run(convert: &Convert) -> ExitCode {
    match text(&convert.schemas) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::from(exit::UNUSABLE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_end_a_string_are_refused() {
        let of = |names: &[&str]| text(&names.iter().map(|name| name.to_string()).collect::<Vec<_>>());
        let good = of(&["shop", "billing é"]).unwrap();
        assert!(good.starts_with("USE `shop`;\nSET @terrace_convert_schemas = 'shop,billing é';\n"));
        for bad in ["", "a,b", "a'b", "a`b", "a\\", "a\nb", &"x".repeat(65)] {
            assert!(of(&["shop", bad]).is_err(), "{bad:?}");
        }
    }
}
