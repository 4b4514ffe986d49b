use super::super::formats::named_columns;
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
        open(self.0.to_str().unwrap(), format, None, 4096, 1)
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
fn each_trace_format_yields_its_accesses() {
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
fn a_trace_record_larger_than_any_request_is_an_error() {
    let text = |format: &str, content: &str| {
        Temporary::new(&format!("much-{format}"), content.as_bytes()).open(Format::named(format))
    };
    for (format, line) in [
        ("arc", "10 18446744073709551000 0 1"),
        ("snia-cambridge", "1,host,0,Read,4000,18446744073709540000,9"),
        ("umass-storage", "0,8,18446744073709540000,r,0.1"),
        ("twitter", "0,aa,18446744073709551000,18446744073709551000,1,get,0"),
        ("cachelib", "5,GET,100,18446744073709551000,8"),
        ("baleen", "1 0 18446744073709540000 5.0 1 0"),
    ] {
        let first = if format == "cachelib" { "key,op,size,op_count,key_size\n" } else { "" };
        let error = text(format, &format!("{first}{line}\n")).err().unwrap_or_default();
        assert!(error.contains("is not of the format"), "{format}: {error}");
    }
    assert_eq!(text("arc", "10 1000000 0 1\n").unwrap().objects(), 1_000_000);
}

/// Each format that the Caffeine simulator names, on lines as its authors wrote them.
#[test]
fn the_caffeine_simulators_formats_are_read_by_its_names() {
    for (format, content, uses_are) in [
        ("address-penalties", "s 0x1fffff50 1 200 1200\nl 0x1fffff58 2 3 4\n", vec![(0, true), (0, false)]),
        (
            "baleen",
            "# block io_offset io_size op_time op_name pipeline\n1 0 100 5.0 1 0\n2 0 4097 5.5 3 0\n1 9 0 6 1 0\n1 9 1 6 7 0\n1 9 1 6 5 0\n",
            vec![(0, false), (1, true), (2, true), (0, false)],
        ),
        (
            "cachelib",
            "key,op,size,op_count,key_size\n5,GET,100,2,8\n5,SET,100,1,8\n6,DELETE,0,1,8\n",
            vec![(0, false), (0, false), (0, true)],
        ),
        ("camelab", "0.1 R 7 2 x\n0.2 w 8 1 x\n", vec![(0, false), (1, false), (1, true)]),
        (
            "lcs-trace",
            "a,b,c,size,lba\n1,2,3,512,77\n1,2,3,512,78\n1,2,3,512,77\n",
            vec![(0, false), (1, false), (0, false)],
        ),
        ("lcs_twitter", "time,key,size,op\n1, aa, 10, get\n2, bb, 10, get\n", vec![(0, false), (1, false)]),
        (
            "outbrain",
            "uuid,document_id,timestamp\nu1,120,61\nu2,234,72\nu3,120,80\n",
            vec![(0, false), (1, false), (0, false)],
        ),
        (
            "snia-enterprise",
            "BeginHeader\nDiskRead, TimeStamp, Process, Thread, Irp, ByteOffset, IOSize, Elapsed, DiskNum\nEndHeader\nFileIo, 1\n   DiskRead, 10, System ( 4), 92, 0xf, 0x0000001000, 0x00001001, 1040, 0\n  DiskWrite, 10, System ( 4), 92, 0xf, 0x1000, 0x0200, 1040, 1\n",
            vec![(0, false), (1, false), (2, true)],
        ),
        (
            "snia-object-store",
            "1219 REST.GET.OBJECT 8d4fcda3d675bac9 1056 0 1055\n1220 REST.GET.OBJECT 77d4fcda3d675bac 0 0 -1\n1221 REST.HEAD.OBJECT 39d177fb735ac5df 528\n1222 REST.PUT.OBJECT 8d4fcda3d675bac9 1168\n",
            vec![(0, false), (0, true)],
        ),
        (
            "snia-k5cloud",
            "5,132,R,4000,200\n5,133,W,4096,1\n6,133,R,0,1\n",
            vec![(0, false), (1, false), (1, true), (2, false)],
        ),
        ("snia-tencent-block", "1538,8,8,0,1063\n1538,15,2,1,1063\n", vec![(0, false), (0, true), (1, true)]),
        (
            "snia-tencent-photo",
            "20160201164559 001f 0 m 4500 1 PHONE 0\n20160201164559 001f 5 m 900 1 PC 1\n20160201164559 001f 1 m 9 1 PC 1\n20160201164559 001f 0 m 4500 1 PC 1\n",
            vec![(0, false), (1, false), (0, false)],
        ),
        (
            "snia-systor",
            "Timestamp,Response,IOType,LUN,Offset,Size\n145.02,0.1,R,4,0,4096\n145.03,,R,4,8192,4096\n145.04,0.1,W,4,4095,2\n",
            vec![(0, false), (0, true), (1, true)],
        ),
        ("tragen", "1,77,100\n2,78,200\n3,77,100\n", vec![(0, false), (1, false), (0, false)]),
        (
            "umass-youtube",
            "1 10.0.0.1 1.2.3.4 GETVIDEO kl4Hk 1.2.3.5\n2 10.0.0.1 1.2.3.4 OTHER x y\n3 10.0.0.1 1.2.3.4 GETVIDEO kl4Hk 1.2.3.5\n",
            vec![(0, false), (0, false)],
        ),
        (
            "wikipedia",
            "1 119.1 http://en.wikipedia.org/wiki/A%20B -\n2 119.2 http://en.wikipedia.org/wiki/User:X -\n3 119.3 http://en.wikipedia.org/wiki/C save\n4 119.4 http://en.wikipedia.org/w/api.php?x -\n5 119.5 http://en.wikipedia.org/wiki/A%20B -\n",
            vec![(0, false), (0, false)],
        ),
    ] {
        assert_eq!(
            uses(&text(format, content).unwrap_or_else(|e| panic!("{format}: {e}"))),
            uses_are,
            "{format}"
        );
    }
    let sized = text("cachelib", "key,op,size,op_count,key_size\n5,GET,100,1,8\n").unwrap();
    assert_eq!(sized.size(0), Some(108));
    let read = text("snia-object-store", "1 REST.GET.OBJECT 8d4fcda3d675bac9 9000 100 1123\n").unwrap();
    assert_eq!(read.size(0), Some(1024));
    // As its documentation lists them; those of binary records are read below.
    for name in "arc adapt-size address address-penalties baleen cache2k cachelib camelab cloud-physics corda gl-cache gradle lcs_trace \
                 lcs_twitter lirs lrb outbrain scarab snia-cambridge snia-enterprise snia-k5cloud snia-object-store snia-systor \
                 snia-tencent-block snia-tencent-photo tragen twitter umass-storage umass-youtube wikipedia"
        .split_whitespace()
    {
        assert!(Format::named(name).is_some(), "{name}");
    }
    assert_eq!(Format::named("gl-cache"), Some(Format::OracleGeneral));
    for (format, content) in [
        ("baleen", "1 0 x 5.0 1 0\n"),
        ("camelab", "0.1 Q 100 2 x\n"),
        ("snia-tencent-block", "1,2,3,7,4\n"),
        ("snia-k5cloud", "5,132,R,18446744073709551615,2\n"),
        ("tragen", "1,2\n"),
        ("umass-youtube", "1 2\n"),
        ("wikipedia", "1 2\n"),
    ] {
        let error = text(format, content).err().unwrap_or_default();
        assert!(error.contains("line 1"), "{format}: {error}");
    }
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
fn a_plain_csv_file_is_read_by_columns_that_are_named_beside_it() {
    let file = Temporary::new("headless.csv", b"7,x,100\n8,y,50\n9,x,100\n");
    assert!(file.open(None).err().unwrap().contains("line 1"));
    let path = file.0.to_str().unwrap();
    let read = |columns| open(path, None, Some(columns), 4096, 1);
    assert_eq!(uses(&read("time,key,size").unwrap()), READS(&[0, 1, 0]));
    assert_eq!(uses(&read("key").unwrap()), READS(&[0, 1, 2]));
    assert!(read("time,key,op").err().unwrap().contains("line 1"));
    assert!(named_columns("time,size").is_err() && named_columns("-,ID").is_ok());
}

#[test]
fn an_invalid_trace_is_refused_with_its_position() {
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
    assert!(open("lirs:/there/is/none", None, None, 4096, 1).is_err());
}
