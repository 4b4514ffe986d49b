//! A small S3 server over a directory, for tests of the whole: `s3_server <directory> <port>`.
//!
//! Buckets are folders of the directory and are made by the caller. Prints one line when it listens.

#[path = "../tests/s3_server/mod.rs"]
mod s3_server;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, directory, port] = args.as_slice() else {
        eprintln!("usage: s3_server <directory> <port>");
        std::process::exit(2);
    };
    let port = port.parse().unwrap_or_else(|_| {
        eprintln!("s3_server: `{port}` is not a port");
        std::process::exit(2);
    });
    let server = s3_server::Server::start(std::path::Path::new(directory), port);
    println!(
        "listening on {} with AWS_ACCESS_KEY_ID={} AWS_SECRET_ACCESS_KEY={}",
        server.endpoint,
        s3_server::KEY,
        s3_server::SECRET
    );
    loop {
        std::thread::park();
    }
}
