//! Libraries of scripts: answers of redis-server 7.0.15 to the same scripts.

mod client;

use client::{Client, Reply, Server, bulk, int};

fn eval(client: &mut Client, script: &str) -> Reply {
    client.ask_args(&[b"EVAL", script.as_bytes(), b"0"])
}

#[test]
fn json_is_that_of_cjson() {
    let server = Server::start();
    let mut client = server.connect();
    for (script, expected) in [
        (r#"return cjson.encode({1,2.5,'a/b"\n',true,cjson.null})"#, r#"[1,2.5,"a\/b\"\n",true,null]"#),
        ("return cjson.encode({})", "{}"),
        ("return cjson.encode({x={1,2,3}})", r#"{"x":[1,2,3]}"#),
        ("return cjson.encode({[1]=1,[3]=3})", "[1,null,3]"),
        ("return cjson.encode({1e20,0.1,1/3})", "[1e+20,0.1,0.33333333333333]"),
        (
            "return cjson.encode(cjson.decode('[1, {\"a\": [null, \"\\\\u00e9\\\\ud83d\\\\ude00\"]}]'))",
            "[1,{\"a\":[null,\"é😀\"]}]",
        ),
        (
            "local _, e = pcall(cjson.decode, '[1,x]'); return e",
            "Expected value but found invalid token at character 4",
        ),
        (
            "local _, e = pcall(cjson.decode, '{1}'); return e",
            "Expected object key string but found T_NUMBER at character 2",
        ),
        (
            "local _, e = pcall(cjson.decode, '[1'); return e",
            "Expected comma or array end but found T_END at character 3",
        ),
        (
            "local _, e = pcall(cjson.decode, '1 2'); return e",
            "Expected the end but found T_NUMBER at character 3",
        ),
        (
            "local _, e = pcall(cjson.encode, {[1]=1,[100]=1}); return e",
            "Cannot serialise table: excessively sparse array",
        ),
        (
            "local _, e = pcall(cjson.encode, {[true]=1}); return e",
            "Cannot serialise boolean: table key must be a number or string",
        ),
        ("local _, e = pcall(cjson.decode, ''); return e", "Expected value but found T_END at character 1"),
        (
            "local _, e = pcall(cjson.decode, '-'); return e",
            "Expected value but found invalid number at character 1",
        ),
        (
            "local _, e = pcall(cjson.decode, '\"abc'); return e",
            "Expected value but found unexpected end of string at character 5",
        ),
        (
            "local _, e = pcall(cjson.decode, '\"a\\\\x\"'); return e",
            "Expected value but found invalid escape code at character 3",
        ),
        (
            "local _, e = pcall(cjson.decode, '\"a\\\\u12\"'); return e",
            "Expected value but found invalid unicode escape code at character 3",
        ),
        (
            "local _, e = pcall(cjson.decode, '{\"a\" 1}'); return e",
            "Expected colon but found T_NUMBER at character 6",
        ),
        (
            "local _, e = pcall(cjson.decode, string.rep('[', 1001)); return e",
            "Found too many nested data structures (1001) at character 1001",
        ),
        ("return cjson.encode(cjson.decode('[01, 1.5e3]'))", "[1,1500]"),
        (
            "local _, e = pcall(cjson.encode, {0/0}); return e",
            "Cannot serialise number: must not be NaN or Inf",
        ),
        (
            "local t = {}; for i = 1, 1100 do t = {t} end; local _, e = pcall(cjson.encode, t); return e",
            "Cannot serialise, excessive nesting (1001)",
        ),
    ] {
        assert_eq!(eval(&mut client, script), bulk(expected), "{script}");
    }
}

#[test]
fn message_pack_goes_both_ways() {
    let server = Server::start();
    let mut client = server.connect();
    let hex = |value: &str| {
        format!(
            "return (cmsgpack.pack({value}):gsub('.', function(c) return string.format('%02x', c:byte()) end))"
        )
    };
    for (value, bytes) in [
        ("1", "01"),
        ("-1", "ff"),
        ("200", "ccc8"),
        ("70000", "ce00011170"),
        ("-200", "d1ff38"),
        ("2^40", "cf0000010000000000"),
        ("1.5", "ca3fc00000"),
        ("0.1", "cb3fb999999999999a"),
        ("'abc'", "a3616263"),
        ("string.rep('a', 40):sub(1, 1)", "a161"),
        ("true, nil, false", "c3c0c2"),
        ("{}", "90"),
        ("{1, {a = 2}}", "920181a16102"),
        ("{[1]=1,[3]=3}", "8201010303"),
    ] {
        assert_eq!(eval(&mut client, &hex(value)), bulk(bytes), "{value}");
    }
    let round = "local t = cmsgpack.unpack(cmsgpack.pack({1, -70000, 1.5, 'x', {k = {true}}})); \
                 return {t[1], t[2], t[3] * 2, t[4], t[5].k[1]}";
    assert_eq!(eval(&mut client, round), Reply::Array(vec![int(1), int(-70000), int(3), bulk("x"), int(1)]));
    let cut = "local _, e = pcall(cmsgpack.unpack, '\\146\\1'); return e";
    assert_eq!(eval(&mut client, cut), bulk("Missing bytes in input."));
    let bad = "local _, e = pcall(cmsgpack.unpack, '\\193'); return e";
    assert_eq!(eval(&mut client, bad), bulk("Bad data format in input."));
}

#[test]
fn bit_operations_wrap_at_32_bits() {
    let server = Server::start();
    let mut client = server.connect();
    for (expression, expected) in [
        ("bit.tobit(0xffffffff)", -1),
        ("bit.tobit(2^32 + 5)", 5),
        ("bit.band(0xff, 0x0f, 0x3)", 3),
        ("bit.bor(1, 2, 4)", 7),
        ("bit.bxor(5, 1)", 4),
        ("bit.bnot(0)", -1),
        ("bit.lshift(1, 33)", 2),
        ("bit.rshift(-1, 28)", 15),
        ("bit.arshift(-16, 2)", -4),
        ("bit.rol(0x12345678, 12)", 0x4567_8123),
        ("bit.bswap(0x12345678)", 0x7856_3412),
    ] {
        assert_eq!(eval(&mut client, &format!("return {expression}")), int(expected), "{expression}");
    }
    assert_eq!(eval(&mut client, "return bit.tohex(0x87654321, -4)"), bulk("4321"));
    assert_eq!(eval(&mut client, "return bit.tohex(-1)"), bulk("ffffffff"));
}

#[test]
fn libraries_cannot_be_changed() {
    let server = Server::start();
    let mut client = server.connect();
    for script in ["cjson.encode = nil", "cmsgpack.x = 1", "bit = nil"] {
        assert!(matches!(eval(&mut client, script), Reply::Error(_)), "{script}");
    }
}

#[test]
fn an_error_of_a_library_names_the_line_of_the_script() {
    let server = Server::start();
    let mut client = server.connect();
    let reply = eval(&mut client, "local x = cjson.decode('x')");
    let expected = "ERR user_script:1: Expected value but found invalid token at character 1 script: 16bb0b5b8d1282c320aecf08df1af35f4e5785cf, on @user_script:1.";
    assert_eq!(reply, Reply::Error(expected.into()));
}

#[test]
fn the_settings_of_cjson_change_what_it_writes_and_reads() {
    let server = Server::start();
    let mut client = server.connect();
    for (script, expected) in [
        ("return tostring(cjson.decode('nan') ~= cjson.decode('NaN'))", "true"),
        ("return tostring(cjson.decode('-0x1F'))", "-31"),
        (
            "cjson.decode_invalid_numbers(false); local ok = pcall(cjson.decode, '0x1F'); return tostring(ok)",
            "false",
        ),
        (
            "cjson.encode_max_depth(1); local ok, e = pcall(cjson.encode, {{1}}); cjson.encode_max_depth(1000); return e",
            "Cannot serialise, excessive nesting (2)",
        ),
        ("cjson.encode_invalid_numbers('null'); return cjson.encode({1/0})", "[null]"),
        ("cjson.encode_invalid_numbers(true); return cjson.encode({-1/0})", "[-inf]"),
        ("cjson.encode_number_precision(3); return cjson.encode({1/3})", "[0.333]"),
        ("cjson.encode_sparse_array(true, 2, 3); return cjson.encode({[1000]=1})", "{\"1e+03\":1}"),
        ("local a, b, c = cjson.encode_sparse_array(); return tostring(a) .. b .. c", "true23"),
        (
            "local _, e = pcall(cjson.encode_max_depth, 0); return e",
            "bad argument #1 to 'encode_max_depth' (expected integer between 1 and 2147483647)",
        ),
    ] {
        let reply = eval(&mut client, script);
        assert_eq!(reply, bulk(expected), "{script}");
    }
}

#[test]
fn struct_packs_and_unpacks_as_its_format_says() {
    let server = Server::start();
    let mut client = server.connect();
    let hex = "local function hex(s) return (s:gsub('.', function(c) return string.format('%02x', c:byte()) end)) end ";
    for (script, expected) in [
        ("return hex(struct.pack('>HBi3', 258, 7, -2))", "010207fffffe"),
        ("return hex(struct.pack('<i', 1) .. struct.pack('>l', 1))", "010000000000000000000001"),
        ("return hex(struct.pack('!4bi', 1, 2))", "0100000002000000"),
        ("return hex(struct.pack('sc2x', 'ab', 'cdef'))", "616200636400"),
        ("return hex(struct.pack('>d', 1.5))", "3ff8000000000000"),
        ("return table.concat({struct.unpack('>HbI3', '\\1\\2\\255\\0\\1\\0')}, ' ')", "258 -1 256 7"),
        ("return table.concat({struct.unpack('Bc0s', '\\2xyz\\0')}, ' ')", "xy z 6"),
        ("return table.concat({struct.unpack('b', 'abc', 2)}, ' ')", "98 3"),
        ("return tostring(struct.size('!8bl'))", "16"),
        (
            "local _, e = pcall(struct.pack, 'i33', 1); return e",
            "integral size 33 is larger than limit of 32",
        ),
        (
            "local _, e = pcall(struct.unpack, 'l', 'abc'); return e",
            "bad argument #2 to 'unpack' (data string too short)",
        ),
        ("local _, e = pcall(struct.unpack, 'c0', 'abc'); return e", "format 'c0' needs a previous size"),
        ("local _, e = pcall(struct.pack, 'q', 1); return e", "invalid format option 'q'"),
        (
            "local _, e = pcall(struct.unpack, 'c2147483647', 'abc', 2); return e",
            "bad argument #2 to 'unpack' (data string too short)",
        ),
    ] {
        let reply = eval(&mut client, &format!("{hex}{script}"));
        assert_eq!(reply, bulk(expected), "{script}");
    }
}
