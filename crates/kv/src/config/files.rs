//! Files that the server reads and writes when it is told to: the ACL file and the configuration file. Commands do no input or output
//! of their own, so who starts the server provides this.

pub trait Files: Send {
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>>;
    /// Replaces a file whole: after a crash it is the old one or the new one.
    fn replace(&self, path: &str, contents: &[u8]) -> std::io::Result<()>;
}
