use super::*;
use std::io::Write;
use std::path::PathBuf;

/// A file of its own, gone at the end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Temporary {
        let path = std::env::temp_dir().join(format!("terrace-trace-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Temporary(path)
    }
    fn open(&self, format: Option<Format>) -> Result<Trace> {
        open(self.0.to_str().unwrap(), format, 4096, 1)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn uses(trace: &Trace) -> Vec<(u32, bool)> {
    trace.uses().collect()
}

fn text(format: &str, content: &str) -> Result<Trace> {
    Temporary::new(&format.replace(['/', ':'], "-"), content.as_bytes()).open(Format::named(format))
}

const READS: fn(&[u32]) -> Vec<(u32, bool)> = |objects| objects.iter().map(|o| (*o, false)).collect();

#[test]
fn each_format_says_what_was_used() {
    let of = |format: &str, content: &str| uses(&text(format, content).unwrap());
    assert_eq!(of("lirs", "7\r\n9\n*\n7\n"), READS(&[0, 1, 0]));
    assert_eq!(of("arc", "10 3 0 1\n11 1 0 2\n"), READS(&[0, 1, 2, 1]));
    assert_eq!(of("address", "l 0x1000 1\ns 0x1ff8 6\nl 0x2000 1\n"), [(0, false), (0, true), (1, false)]);
    assert_eq!(
        of("gradle", "d05fdfe4022d6da89116ccbd91a8df8b\n00\nd05fdfe4022d6da89116ccbd91a8df8b\n"),
        READS(&[0, 1, 0])
    );
    assert_eq!(
        of("snia-cambridge", "1,host,0,Read,4000,200,9\n2,host,0,Write,4096,1,9\n3,host,1,Read,0,4096,9\n"),
        [(0, false), (1, false), (1, true), (2, false)]
    );
    assert_eq!(
        of("umass-storage", "0,8,4096,r,0.1\n0,0,512,W,0.2\n1,8,512,R,0.3\n"),
        [(0, false), (1, true), (2, false)]
    );
    assert_eq!(
        of("twitter", "0,aa,2,100,1,get,0\n0,bb,2,10,1,set,9\n0,aa,2,90,1,gets,0\n"),
        [(0, false), (1, true), (0, false)]
    );
    assert_eq!(
        of("csv", "time,obj_id,size,op\n1,x,100,read\n2,y,50,Write\n3,x,120,get\n"),
        [(0, false), (1, true), (0, false)]
    );
    let sized = text("lrb", "1 5 100\n2 6 200\n3 5 120\n").unwrap();
    assert_eq!((uses(&sized), sized.size(0), sized.size(1)), (READS(&[0, 1, 0]), Some(120), Some(200)));
    assert_eq!(text("lirs", "5\n").unwrap().size(0), None);
}

#[test]
fn binary_records_are_read_as_their_authors_write_them() {
    let mut oracle = Vec::new();
    for (time, id, size, next) in [(1u32, 77u64, 4096u32, 3i64), (2, 88, 512, -1), (3, 77, 4096, -1)] {
        oracle.extend(time.to_le_bytes());
        oracle.extend(id.to_le_bytes());
        oracle.extend(size.to_le_bytes());
        oracle.extend(next.to_le_bytes());
    }
    let file = Temporary::new("w01.oracleGeneral.bin", &oracle);
    let trace = file.open(None).unwrap();
    assert_eq!((uses(&trace), trace.size(1)), (READS(&[0, 1, 0]), Some(512)));
    let cut = Temporary::new("cut.oracleGeneral", &oracle[..50]).open(None).err().unwrap();
    assert!(cut.contains("record 2 ends after 2 of 24 bytes"), "{cut}");
    let ints = Temporary::new("ints", &[0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1]);
    assert_eq!(uses(&ints.open(Format::named("cache2k")).unwrap()), READS(&[0, 1, 0]));
    let longs = Temporary::new("longs", &[[0u8; 8], [1; 8], [0; 8]].concat());
    assert_eq!(uses(&longs.open(Format::named("scarab")).unwrap()), READS(&[0, 1, 0]));
}

#[test]
fn compressed_files_are_read_as_they_were() {
    let content =
        "key,op\n".to_string() + &(0..5000).map(|n| format!("{},read\n", n % 700)).collect::<String>();
    let plain = Temporary::new("plain.csv", content.as_bytes()).open(None).unwrap();
    assert_eq!((plain.objects(), plain.len()), (700, 5000));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(content.as_bytes()).unwrap();
    let zst =
        ruzstd::encoding::compress_to_vec(content.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest);
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    xz.write_all(content.as_bytes()).unwrap();
    let xz = xz.finish().unwrap();
    for (name, packed) in [("t.csv.gz", gz.finish().unwrap()), ("t.csv.zst", zst), ("t.csv.xz", xz)] {
        assert!(packed.len() < content.len(), "{name}");
        let trace = Temporary::new(name, &packed).open(None).unwrap();
        assert_eq!(uses(&trace), uses(&plain), "{name}");
        let cut = Temporary::new(&format!("cut-{name}"), &packed[..packed.len() / 2]).open(None);
        assert!(cut.is_err(), "{name}, cut");
    }
}

#[test]
fn what_is_no_trace_is_refused_with_its_place() {
    for (format, content, said) in [
        ("lirs", "1\nx\n", "line 2"),
        ("lirs", "", "no accesses"),
        ("arc", "18446744073709551615 5\n", "line 1"),
        ("csv", "time,size\n1,2\n", "line 1"),
        ("csv", "key,op\n1,jump\n", "line 2"),
        ("csv", "key,size\n1\n", "line 2"),
        ("snia-cambridge", "1,h,0,Read,18446744073709551615,5,0\n", "line 1"),
        ("address", "l\n", "line 1"),
    ] {
        let error = text(format, content).err().unwrap_or_default();
        assert!(error.contains(said), "{format} {content:?}: {error}");
    }
    let unnamed = Temporary::new("unknown.bin", b"1\n").open(None).err().unwrap();
    assert!(unnamed.contains("--format"), "{unnamed}");
    assert!(open("lirs:/there/is/none", None, 4096, 1).is_err());
}
