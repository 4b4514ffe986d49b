//! The script or function that runs, as other clients see it when it runs for long.

use terrace_io::clock::Nanos;

pub struct Running {
    pub is_function: bool,
    /// The name of the function; the SHA-1 of the script.
    pub name: String,
    pub command: Vec<Vec<u8>>,
    pub started: Nanos,
    pub has_written: bool,
    /// Another client has ended it.
    pub is_killed: bool,
}

pub const BUSY_SCRIPT: &str =
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
pub const BUSY_FUNCTION: &str =
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.";

impl Running {
    /// What other clients are answered.
    pub fn refusal(&self) -> &'static str {
        if self.is_function { BUSY_FUNCTION } else { BUSY_SCRIPT }
    }

    /// Ends it, or says why not. `function`: a function is to be ended.
    pub fn kill(&mut self, function: bool) -> Result<(), &'static str> {
        if self.has_written {
            return Err(
                "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
            );
        }
        if self.is_function != function {
            return Err(self.refusal());
        }
        self.is_killed = true;
        Ok(())
    }
}
