//! The exit codes of the command.

/// Everything was examined and nothing is wrong. Leaked space and damaged spare copies do not count as faults.
pub const SOUND: u8 = 0;
/// Something is wrong with the instance.
pub const FAULTS: u8 = 1;
/// The usage or the configuration is wrong, or the instance cannot be opened (it is running, or the store belongs to another one).
pub const UNUSABLE: u8 = 2;
/// No fault was found, but not everything could be examined: pages are in objects and `--object` is missing, or the store
/// does not answer.
pub const INCOMPLETE: u8 = 3;
