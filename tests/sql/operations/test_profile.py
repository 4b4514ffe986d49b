"""The engine is compiled with a profile of what it does most (scripts/profile.sh), and the profile matches the present code."""

import os
import re
import struct
import subprocess
import sys

import pytest
from conftest import ROOT, TARGET

PROFILE = os.path.join(ROOT, "crates", "sql", "profile")
TEXT = os.path.join(ROOT, "scripts", "profile_text.py")


def test_hot_functions_are_placed_together():
    compiler = subprocess.run(["rustc", "-V"], stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout
    if compiler != open(os.path.join(PROFILE, "compiler")).read():
        pytest.skip("the profile is of another compiler")
    library = os.path.join(TARGET, "release", "libterrace_sql.a")
    sections = subprocess.run(["readelf", "-SW", library], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300).stdout
    hot = re.findall(r"\.text\.hot\.(\S+)", sections)
    assert len(hot) > 300, "few of its functions are as they were: record it again, by make profile"
    for name in ("terrace_cursor_fetch_rows", "terrace_txn_commit"):
        assert name in hot, name


def test_a_file_that_is_no_raw_profile_is_refused(tmp_path):
    def text(content):
        (tmp_path / "raw").write_bytes(content)
        done = subprocess.run([sys.executable, TEXT, tmp_path / "text", tmp_path / "raw"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return done.returncode, done.stdout

    # A function `f` whose form has the hash 7, that ran three times one way and never the other: what instrumented code writes, version 10.
    function = struct.pack("<QQqQQQI12x", 0xCC914F75DD4CA18F, 7, 64, 0, 0, 0, 2)
    names = b"\1\0f" + bytes(5)
    header = [0xFF6C70726F667281, 10 | 1 << 56, 0, 1, 0, 2, 0, 0, 0, 3, 64, 0, 0, 0, 0, 2]
    whole = function + struct.pack("<2Q", 3, 0) + names
    code, said = text(struct.pack("<16Q", *header) + whole)
    assert code == 0, said
    assert (tmp_path / "text").read_text() == ":ir\nf\n7\n2\n3\n0\n\n"

    for at, value in ((0, 1), (1, 4 | 1 << 56), (1, 10), (3, 1 << 40), (5, 1), (10, 65)):
        code, said = text(struct.pack("<16Q", *header[:at], value, *header[at + 1:]) + whole)
        assert code == 1 and "Traceback" not in said, (at, value, said)
    for content in (b"", b"no profile", struct.pack("<16Q", *header), struct.pack("<16Q", *header) + whole[:70]):
        code, said = text(content)
        assert code == 1 and "Traceback" not in said, said
