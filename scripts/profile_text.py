"""Converts an instrumented program's counts (LLVM's raw profile, versions 9 and 10) into LLVM's text form, which every llvm-profdata reads. The llvm-profdata
of the compiler's own version is in no Debian package, and older ones cannot read the raw form. Functions that never ran are left out and compiled without
a profile. Usage: profile_text.py OUT RAW...
"""

import hashlib
import struct
import sys
import zlib

MAGIC = 0xFF6C70726F667281
FUNCTION = struct.Struct("<QQqQQQI12x")  # the name's hash, its form's hash, where its counters are, …, how many


def number(data, at):
    """LEB128: the number, and where it ends."""
    value = shift = 0
    while True:
        byte, at = data[at], at + 1
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, at


def names_in(data):
    """By their hashes."""
    names, at = {}, 0
    while at < len(data):
        if not data[at]:  # what fills up to a word
            at += 1
            continue
        plain, at = number(data, at)
        packed, at = number(data, at)
        text, at = (zlib.decompress(data[at:at + packed]), at + packed) if packed else (data[at:at + plain], at + plain)
        for name in text.split(b"\1"):
            names[struct.unpack("<Q", hashlib.md5(name).digest()[:8])[0]] = name
    return names


def read(path):
    """Counters by function."""
    data = open(path, "rb").read()
    if len(data) < 128:
        sys.exit(f"{path}: not a raw profile")
    (magic, version, ids, functions, before, counters, after, bitmap, behind, size, delta, *_) = struct.unpack_from("<16Q", data)
    if magic != MAGIC or version & 0xFFFFFFFF not in (9, 10) or not version >> 56 & 1:
        sys.exit(f"{path}: not a raw profile of version 9 or 10 of a compiler's intermediate code: {magic:#x}, {version:#x}")
    table = 128 + ids
    first = table + functions * FUNCTION.size + before
    names_at = first + counters * 8 + after + bitmap + behind
    if names_at + size > len(data):
        sys.exit(f"{path}: cut short")
    names = names_in(data[names_at:names_at + size])
    found = {}
    for at in range(functions):
        name, form, place, _, _, _, count = FUNCTION.unpack_from(data, table + at * FUNCTION.size)
        offset = (place - (delta - at * FUNCTION.size)) % 2**64
        if offset + count * 8 > counters * 8 or name not in names:
            sys.exit(f"{path}: function {at} has counters or a name elsewhere")
        found[names[name], form] = struct.unpack_from(f"<{count}Q", data, first + offset)
    return found


def main():
    out, *paths = sys.argv[1:]
    sums = {}
    for path in paths:
        for key, counts in read(path).items():
            sums[key] = [a + b for a, b in zip(sums[key], counts)] if key in sums else counts
    ran = {key: counts for key, counts in sums.items() if any(counts)}
    with open(out, "wb") as text:
        text.write(b":ir\n")
        for (name, form), counts in sorted(ran.items()):
            text.write(b"%s\n%d\n%d\n%s\n\n" % (name, form, len(counts), b"\n".join(b"%d" % count for count in counts)))
    print(f"{len(ran)} of {len(sums)} functions ran")


if __name__ == "__main__":
    main()
