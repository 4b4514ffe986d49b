#!/usr/bin/env python3
"""Finds the worst phrases of this project's old dialect, so that they do not come back. Prints file:line for each and exits with 1.

Usage: words.py [PATH...]    without paths: all of COVERED

Checked is what people read: in Markdown everything but code; in scripts and sources the comments, and in scripts the printed texts too.
Code spans, code blocks and quotations in “” are left out. Decision notes are frozen and not checked.
"""

import bisect
import io
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What is checked.
COVERED = [
    "README.md", "docs/*.md", "Makefile", "scripts/*", "demo/*.py", "bench", "fuzz/*.rs", "tests",
    "crates/capi/src", "crates/cli/src", "crates/cost/src", "crates/engine/src", "crates/files/src", "crates/files-capi/src", "crates/files-s3/src", "crates/io/src", "crates/kv/src", "crates/log/src", "crates/sim/src", "crates/sql/src", "crates/terrace/src", "crates/tier/src", "crates/workload/src",
    "crates/*/tests", "crates/*/examples",
    "python/src", "python/package", "python/tests",
    "mariadb/codec", "mariadb/ddl", "mariadb/foreign", "mariadb/handler", "mariadb/info", "mariadb/session",
]
# Left out: this list of phrases, and what the server's own test suites print.
LEFT_OUT = ("scripts/words.py", "tests/mtr/expected/")

# Where a sentence, a clause after a semicolon or colon, a list item or a table cell begins.
BEGIN = r"(?:\A|\"{3}|\n[ \t]*\n|\n[ \t]*(?:[*-]|\d+\.|#+|//[/!]?|#)[ \t]+|\|[ \t]*|[.;:!?)”][ \t\n]+)\**"
WORDS = [
    # pattern, what to write instead, an example that it must find
    (BEGIN + r"[Ww]ho(?:ever)?\b(?![^.|]*\?)", "name the actor", "Who waits has no frame."),
    (r"\b(?:by|for|of|to|from|than|because) who(?:ever)?\b", "name the actor", "locks are asked by who locks"),
    (BEGIN + r"Of (?:those|an?|what|which|these|such|them|the(?! \d)|each)\b", "subject first", "Of a large value only its start is read."),
    (r"[;:] of (?:those|an?|what|which|these|such|them|the(?! \d)|each)\b", "subject first", "undo is kept; of an update only what differs"),
    (r"\bone (?:that|who) (?:waits|reads|writes|commits)\b", "name the actor", "one who waits"),
    (r"\b[Ss]o (?:many|few)\b", "N entries, each N bytes", "a burst of so many pages"),
    (r"\b(?:what|all that) there (?:is|are|was|were)\b|\bthat there (?:is|are|was|were)(?=[.,;:)]|\s(?:and|but|at|for)\b)|\b(?:what|that|which) (?:is|are|was|were) there\b", "say which", "what is there stays"),
    (r"\b(?:[Nn]o|[Aa]ny|[Ss]ome)body\b", "name the actor: a thread, a session, a client", "nobody waits for it"),
    (r"\blies? apart\b", "is stored off-page", "the value lies apart"),
    (r"\b(?:gives?|gave|giving|given) way\b", "yields; is the victim", "builds give way"),
    (r"\bat the (?:least|most)\b", "at least, at most", "4M at the least"),
    (r"\bin mid-", "during, in the middle of", "in mid-scan"),
    (r"\bleaves with\b", "exit code", "it leaves with 1"),
    (r"\bof (?:one|the same) moment\b", "consistent; point-in-time", "copies of one moment"),
    (r"\bas ever\b", "as before", "they are compiled as ever"),
    (r"\bin the mean\b", "on average", "sixty in the mean"),
    (r"\bwithout a word\b|\bin words\b", "silently; as text", "an error in words"),
    (r"\bby turns\b", "in turn", "both engines by turns"),
    (r"(?<!there )\b(?:is|are|was|were) none\b(?! of)", "say that there is none of what", "a directory that is none"),
    (r"\b(?:made|make|making|built|begins?|began) anew\b", "rebuild, restart, again", "the table is made anew"),
    (r"\bbut for\b", "except", "all but for one"),
    (r"\bcircles? of waits\b", "deadlock", "a circle of waits"),
    (r"\bcomes? ahead\b|\bcame ahead\b", "is prefetched", "a page that came ahead"),
    (r"\basked for together\b|\bcommon to people\b", "fetched in parallel", "rows asked for together"),
]
PATTERNS = [(re.compile(pattern), instead) for pattern, instead, _ in WORDS]

CODE = re.compile(r"```.*?```|`[^`\n]*`|“[^”]*”|(?m:^(?: {4}|\t)(?![ \t]*[*-] )[^\n]*$)", re.DOTALL)
QUOTED = re.compile(r"`[^`\n]*`|“[^”]*”")


def blank(match):
    """As long as what it stands for, so that places stay what they are."""
    return re.sub(r"[^\n]", "x", match.group(0))


def prose(path, text):
    """The text with all that is not prose blanked."""
    if path.suffix == ".md":
        return CODE.sub(blank, text)
    if path.suffix in (".rs", ".cc", ".h", ".c"):
        return QUOTED.sub(blank, re.sub(r"(?m)^(?:(?!//).)*", lambda m: " " * len(m.group(0)), text))
    if path.suffix == ".py":
        # Comments and strings: a loop's variable may be named `who`.
        lines = text.splitlines(keepends=True)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
                (line, begin), (_, end) = token.start, token.end
                lines[line - 1] = lines[line - 1][:begin] + " " * (end - begin) + lines[line - 1][end:]
        text = "".join(lines)
    # Makefiles and shell: comments and printed texts are not told apart from code, whose words do not match.
    return QUOTED.sub(blank, text)


def found(path, text):
    """(line, phrase, what to write instead) of each."""
    text_of = prose(path, text)
    lines = [at for at, letter in enumerate(text) if letter == "\n"]
    for pattern, instead in PATTERNS:
        for match in pattern.finditer(text_of):
            phrase = match.group(0)
            begin = match.start() + len(phrase) - len(phrase.lstrip(" \t\n|*#.;:!?)”/-"))
            yield bisect.bisect_left(lines, begin) + 1, " ".join(text[begin:match.end() + 30].split()), instead


def files(arguments):
    """Those that are named, or covered; of a directory all in it."""
    for argument in arguments or COVERED:
        matches = sorted(ROOT.glob(argument)) if not arguments else [pathlib.Path(argument).resolve()]
        if not matches or not all(path.exists() for path in matches):
            sys.exit(f"error: there is no file {argument}")
        for path in matches:
            for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if one.is_file() and not {"__pycache__", "target"} & set(one.parts) and not str(one.relative_to(ROOT)).startswith(LEFT_OUT):
                    yield one


def main():
    for (pattern, _), (_, _, example) in zip(PATTERNS, WORDS):
        if not pattern.search(example):
            sys.exit(f"error: {pattern.pattern} does not find its own example: {example}")
    count = 0
    for path in files(sys.argv[1:]):
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for line, phrase, instead in sorted(found(path, text)):
            count += 1
            print(f"{path.relative_to(ROOT)}:{line}: “{phrase}…” ({instead})")
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
