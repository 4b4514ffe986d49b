#!/usr/bin/env python3
"""Checks how the source tree is divided: `rooms.py [crate ...]`, or `rooms.py --self-test`.

A room is a top-level module of a crate: `src/x.rs` with everything below `src/x/`. Three rules:

* No circle: the graph "room x names something of room y" has no cycle. Names count wherever they stand
  (`use crate::y::…`, `super::super::y::…`, or a path inside an expression); test code does not count.
* No crowd: a crate's `src/` has at most ENTRIES_MAX entries; `x.rs` and `x/` are one.
* No dead name: each file or folder that docs/architecture.md names exists.

Without arguments the crates of CLEAN are checked. A crate named as an argument is checked whether it is in CLEAN or not.
Each finding is printed with the lines that prove it. Exit code 1 if there is any finding.
"""

import re
import sys
import tempfile
from pathlib import Path

# Crates that must pass.
CLEAN = ["io", "sim", "cost", "log", "tier", "engine", "terrace", "sql", "capi", "workload", "cli", "kv", "files", "files-capi", "files-s3"]
ENTRIES_MAX = 20
PAGE = "docs/architecture.md"
# Where a file that the page names may be.
TREES = ["bench", "crates", "demo", "docs", "fuzz", "mariadb", "python", "scripts", "tests"]
ROOT = "(crate root)"


def blank(text):
    """The source without comments, strings and characters: spaces in their place, so that lines stay the same."""
    pattern = re.compile(
        r"""//[^\n]*|/\*.*?\*/|b?r(?P<h>\#*)".*?"(?P=h)|b?"(?:\\.|[^"\\])*"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\\n])'""",
        re.S,
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def without_tests(text):
    """The source without items under `#[cfg(test)]` or `#[cfg(all(test, …))]`: an item ends at its `;` or its closing brace."""
    out = text
    for start in re.finditer(r"#\[cfg\((?:all\()?test\b[^\]]*\]", text):
        depth, at = 0, start.end()
        while at < len(text):
            c = text[at]
            if c in "{([":
                depth += 1
            elif c in "})]":
                depth -= 1
            at += 1
            if depth == 0 and c in ";}":
                break
        out = out[: start.start()] + re.sub(r"[^\n]", " ", out[start.start() : at]) + out[at:]
    return out


def inline_modules(text):
    """For each offset at which an inline `mod x {` or its end stands: (start, end, name), outermost first."""
    found = []
    for start in re.finditer(r"\bmod\s+(\w+)\s*\{", text):
        depth, at = 1, start.end()
        while at < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        found.append((start.end(), at, start.group(1)))
    return found


def tree_names(text, at):
    """The first segments that a path may go on with at `at`: `a`, or each of `{a, b::c, self}`."""
    opening = re.compile(r"\s*\{").match(text, at)
    if not opening:
        name = re.compile(r"\s*(\w+)").match(text, at)
        return [(name.group(1), name.end())] if name else []
    names, depth, at, fresh = [], 1, opening.end(), True
    while at < len(text) and depth:
        c = text[at]
        depth += {"{": 1, "}": -1}.get(c, 0)
        if fresh and depth == 1 and (word := re.compile(r"\w+").match(text, at)):
            names.append((word.group(), word.end()))
            at, fresh = word.end(), False
            continue
        fresh = fresh and c.isspace() or depth == 1 and c == ","
        at += 1
    return names


class Crate:
    def __init__(self, root, name):
        self.root, self.name, self.src = root, name, root / "crates" / name / "src"
        self.rooms = {
            p.stem
            for p in self.src.iterdir()
            if p.stem not in ("lib", "main", "bin") and (p.is_dir() or p.suffix == ".rs")
        }
        self.exports = {}  # a name that the crate root re-exports: the room that has it
        self.edges = {}  # (from, to): file:line

    def entries(self):
        return sorted({p.stem for p in self.src.iterdir()})

    def target(self, name):
        """The room behind the first segment of a path below the crate's root."""
        if name in self.rooms:
            return name
        return self.exports.get(name, ROOT)

    def note(self, origin, name, file, text, at):
        to = self.target(name)
        if to != origin:
            line = text.count("\n", 0, at) + 1
            self.edges.setdefault((origin, to), f"{file.relative_to(self.root)}:{line}")

    def read_root(self, file):
        text = without_tests(blank(file.read_text()))

        def export(use):
            room, rest = use.group(1), use.group(2)
            if room in self.rooms:
                for name in re.findall(r"\w+", rest):
                    self.exports[name] = room
            return re.sub(r"[^\n]", " ", use.group())

        text = re.sub(r"\bpub(?:\([^)]*\))?\s+use\s+(?:crate::|self::)?(\w+)::([^;]*);", export, text)
        for path in re.finditer(r"(?<![\w:])(?:crate::|self::)?(\w+)\s*::", text):
            if path.group(1) in self.rooms:
                self.note(ROOT, path.group(1), file, text, path.start())

    def read(self, file):
        parts = list(file.relative_to(self.src).with_suffix("").parts)
        if parts[-1] == "mod":
            parts.pop()
        if "tests" in parts or parts[0] == "bin":
            return
        text = without_tests(blank(file.read_text()))
        inside = inline_modules(text)
        for path in re.finditer(r"(?<![\w:])(crate|super(?:\s*::\s*super)*)\s*::", text):
            here = parts + [name for start, end, name in inside if start <= path.start() < end]
            if path.group(1) == "crate":
                base = []
            else:
                ups = path.group(1).count("super")
                base = here[: max(0, len(here) - ups)]
            if base:
                continue  # inside the room
            for name, at in tree_names(text, path.end()):
                if name != "self":
                    self.note(parts[0], name, file, text, at)

    def scan(self):
        roots = [self.src / n for n in ("lib.rs", "main.rs") if (self.src / n).exists()]
        for file in roots:
            self.read_root(file)
        files = [file for file in sorted(self.src.rglob("*.rs")) if file not in roots]
        tests = {module for file in files for module in self.test_modules(file)}
        for file in files:
            module = file.relative_to(self.src).with_suffix("")
            if not any(test == module or test in module.parents for test in tests):
                self.read(file)
        return self

    def test_modules(self, file):
        """The modules that this file declares under `#[cfg(test)]` or `#[cfg(all(test, …))]`."""
        module = file.relative_to(self.src).with_suffix("")
        for name in re.findall(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", blank(file.read_text())):
            yield (module.parent if module.name == "mod" else module) / name

    def circles(self):
        """One circle for each strongly connected component: the shortest through its first room."""
        graph = {}
        for start, to in self.edges:
            graph.setdefault(start, []).append(to)
        found, done = [], set()
        for first in sorted(graph):
            if first in done:
                continue
            ways, queue = {first: [first]}, [first]
            circle = None
            while queue and not circle:
                at = queue.pop(0)
                for to in graph.get(at, []):
                    if to == first:
                        circle = ways[at] + [first]
                        break
                    if to not in ways:
                        ways[to] = ways[at] + [to]
                        queue.append(to)
            if circle:
                found.append([(a, b, self.edges[a, b]) for a, b in zip(circle, circle[1:])])
                done.update(circle)
        return found


def check_crate(root, name):
    crate = Crate(root, name).scan()
    findings = []
    for circle in crate.circles():
        lines = [f"crates/{name}: modules in a circle"]
        lines += [f"  {where}: {start} uses {to}" for start, to, where in circle]
        findings.append("\n".join(lines))
    entries = crate.entries()
    if len(entries) > ENTRIES_MAX:
        findings.append(f"crates/{name}/src: {len(entries)} entries, at most {ENTRIES_MAX}: {', '.join(entries)}")
    return findings


def check_page(root):
    page = root / PAGE
    if not page.exists():
        return [f"{PAGE}: missing"]
    there = set()
    for tree in TREES:
        for path in (root / tree).rglob("*"):
            parts = path.relative_to(root).parts
            if "target" in parts or "__pycache__" in parts:
                continue
            for start in range(len(parts)):
                there.add("/".join(parts[start:]))
    findings = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for name in re.findall(r"`([\w./-]+)`", line):
            is_file = re.search(r"\.(rs|cc|h|c|py|sh|md|toml)$", name)
            if (is_file or "/" in name) and name.strip("/") not in there and not (root / name).exists():
                findings.append(f"{PAGE}:{number}: there is no `{name}`")
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", line):
            if not (page.parent / link).exists():
                findings.append(f"{PAGE}:{number}: the link to {link} is dead")
    return findings


def check(root, names):
    findings = [finding for name in names for finding in check_crate(root, name)]
    return findings + check_page(root)


def self_test():
    """Each kind of fault is planted in a small tree and must be found; the tree without faults must pass."""

    def plant(files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            sound = {
                "crates/x/src/lib.rs": "pub mod a;\npub mod b;\nmod c;\npub use c::Thing;\npub const ONE: u8 = 1;\n",
                "crates/x/src/a.rs": "use crate::{ONE, b::{self, B}};\nmod deep;\n"
                "/* crate::c */ // crate::c\n#[cfg(test)]\nmod tests { use crate::c::C; }\n"
                '#[cfg(all(test, feature = "model"))]\nmod model;\n',
                "crates/x/src/a/model.rs": "mod more; use crate::c::C;\n",
                "crates/x/src/a/model/more.rs": "use crate::c::C;\n",
                "crates/x/src/a/deep.rs": "use super::A; use super::super::b::B;\n",
                "crates/x/src/a/tests.rs": "use crate::c::C;\n",
                "crates/x/src/b.rs": 'pub struct B(char); fn f() { g("crate::a", \'"\', "crate::a") }\n',
                "crates/x/src/c.rs": "use crate::a::A;\nfn f<'a>(x: &'a str) {}\n",
                PAGE: "`x/src/a.rs`, `a/deep.rs`, `Pool::find` and [this](architecture.md)\n",
            }
            for name, text in {**sound, **files}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check(root, ["x"])

    assert plant({}) == [], plant({})
    lib = "pub mod a;\npub mod b;\nmod c;\npub use c::Thing;\n"
    planted = {
        "a path in an expression": ({"crates/x/src/b.rs": "\nfn f() { crate::a::g() }"}, "b.rs:2: b uses a"),
        "a group": ({"crates/x/src/b.rs": "use crate::{\n  ONE,\n  a::{A, Other},\n};"}, "b.rs:3: b uses a"),
        "super in a nested file": ({"crates/x/src/b/d.rs": "use super::super::c::C;"}, "b/d.rs:1: b uses c"),
        "super in an inline module": ({"crates/x/src/b.rs": "mod i { use super::super::a::A; }"}, "b uses a"),
        "a name that the root re-exports": ({"crates/x/src/b.rs": "use crate::Thing;"}, "b uses c"),
        "through the root's own items": (
            {"crates/x/src/lib.rs": lib + "pub struct S(b::B);\n", "crates/x/src/b.rs": "use crate::S;"},
            "(crate root) uses b",
        ),
        "a crowd": ({f"crates/x/src/m{i}.rs": "" for i in range(20)}, "24 entries"),
        "a dead name": ({PAGE: "see\n`x/src/gone.rs`\n"}, f"{PAGE}:2: there is no `x/src/gone.rs`"),
        "a dead link": ({PAGE: "[note](decisions/gone.md)\n"}, "the link to decisions/gone.md is dead"),
    }
    for what, (files, expected) in planted.items():
        found = "\n".join(plant(files))
        assert expected in found, f"planted, {what}: expected `{expected}`, found: {found or 'nothing'}"
    print(f"rooms: {len(planted)} planted faults found")


def main(arguments):
    if arguments == ["--self-test"]:
        self_test()
        return 0
    findings = check(Path(__file__).resolve().parent.parent, arguments or CLEAN)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
