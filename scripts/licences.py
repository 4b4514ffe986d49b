#!/usr/bin/env python3
"""Fails if a crate that is linked into the handler is not compatible with GPL-2.0, or one of the C library or Python module is not permissive."""

import json
import subprocess
import sys

GOOD = {"MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Zlib", "Unlicense", "CC0-1.0", "BSL-1.0", "0BSD", "Unicode-3.0", "Unicode-DFS-2016"}
# What is linked with no GPL code may also have these.
PERMISSIVE = GOOD | {"Apache-2.0"}


def compatible(expression, licences=GOOD):
    """Whether an SPDX expression allows one of these licences: one good alternative of each part that is required."""
    text = expression.replace("/", " OR ").replace("(", " ( ").replace(")", " ) ")
    tokens = text.split()

    def either(at):
        good, at = both(at)
        while at < len(tokens) and tokens[at] == "OR":
            more, at = both(at + 1)
            good = good or more
        return good, at

    def both(at):
        good, at = one(at)
        while at < len(tokens) and tokens[at] == "AND":
            more, at = one(at + 1)
            good = good and more
        return good, at

    def one(at):
        if tokens[at] == "(":
            good, at = either(at + 1)
            return good, at + 1
        good, at = tokens[at] in licences, at + 1
        if at < len(tokens) and tokens[at] == "WITH":
            good, at = False, at + 2
        return good, at

    return either(0)[0]


def main():
    metadata = json.loads(subprocess.run(["cargo", "metadata", "--format-version=1", "--locked"], check=True, stdout=subprocess.PIPE).stdout)
    packages = {p["id"]: p for p in metadata["packages"]}
    nodes = {n["id"]: n for n in metadata["resolve"]["nodes"]}

    def linked(name):
        todo = [i for i, p in packages.items() if p["name"] == name]
        seen = set()
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            for dependency in nodes[one]["deps"]:
                # Linked dependencies only: not those of tests and build scripts.
                if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                    todo.append(dependency["pkg"])
        assert len(seen) > 10, name
        return sorted(seen)

    def check(name, licences, what):
        crates = linked(name)
        bad = [f"{packages[i]['name']} {packages[i]['version']}: {packages[i]['license']}" for i in crates if not compatible(packages[i]["license"] or "none", licences)]
        if bad:
            sys.exit(f"{name}: not {what}:\n  " + "\n  ".join(bad))
        print(f"licences: {len(crates)} crates linked into {name}, all {what}")

    assert not compatible("Apache-2.0") and compatible("MIT OR Apache-2.0") and not compatible("MIT AND Apache-2.0")
    assert compatible("Apache-2.0", PERMISSIVE) and not compatible("GPL-2.0", PERMISSIVE)
    check("terrace-sql", GOOD, "compatible with GPL-2.0")
    check("terrace-capi", PERMISSIVE, "permissive")
    check("terrace-files-capi", PERMISSIVE, "permissive")
    check("terrace-python", PERMISSIVE, "permissive")


if __name__ == "__main__":
    main()
