"""Each collation that the server has, on random texts of odd bytes: an index of the engine has InnoDB's order, which is made by the
server's own comparison, and finds what is equal and what is in a range.

TERRACE_SEED: other texts. TERRACE_TEXTS: the number of texts for each character set (default 150).
"""

import os
import random

import pytest

SEED = int(os.environ.get("TERRACE_SEED", "1"))
TEXTS = int(os.environ.get("TERRACE_TEXTS", "150"))
CHARSETS = ["armscii8", "ascii", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932", "dec8", "eucjpms", "euckr",
            "gb2312", "gbk", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1", "latin2", "latin5", "latin7", "macce",
            "macroman", "sjis", "swe7", "tis620", "ucs2", "ujis", "utf16", "utf16le", "utf32", "utf8mb3", "utf8mb4"]
# Columns to compare in a table.
COLUMNS = 24

# What contracts, expands, is ignored, reorders, or has weights on some levels only, in one language or another.
LETTERS = ["aAáäåâăąeEéèêiIíıİjJlLłnNñňoOöőøóuUüűyYýgGkKvVwW", "cChHčČçdDzZžŽsSšŠșştTțþrRřlLjJ", "ßæÆœŒĳŐđĐðŋĸ'-‐’  \t\0!~_.", "аАбвгѓёіїйкљњћџ",
           "αΑάβγςσΣ", "אבגַ", "ابةهيىّ", "กขเแโใไ็่้ะาำ", "ძაბგ", "ԱաևՒ", "가각힣ㄱ", "一丁乙亜唖腌爱", "あアｱがガゔヴーっッ々", "ﬁﬀÅ①²½℡Ⅸ", "😀𝐀𐐀𐐨\U00020000"]
CLUSTERS = ["ch", "CH", "Ch", "cH", "dz", "DZS", "dzs", "ccs", "ll", "Ll", "lj", "nj", "dž", "aa", "AA", "ij", "oe", "sz", "zs", "ty", "gy", "ny", "ng", "ss", "ae", "c\u030c", "a\u0301", "e\u0300\u0323", "\u0e40\u0e01", "\u09a1\u09bc"]


def texts(rng, charset):
    """Texts as bytes of the character set: of letters, and of whatever bytes there are, which the server may cut short."""
    names = {"latin1": "cp1252", "utf8mb4": "utf-8", "utf8mb3": "utf-8", "ucs2": "utf-16-be", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be",
             "euckr": "euc_kr", "eucjpms": "euc_jp", "ujis": "euc_jp", "sjis": "shift_jis", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13",
             "greek": "iso8859_7", "hebrew": "iso8859_8", "koi8r": "koi8_r", "koi8u": "koi8_u", "macce": "mac_latin2", "macroman": "mac_roman", "tis620": "tis_620"}
    pages = list(LETTERS)
    found = [b""]
    while len(found) < TEXTS:
        kind = rng.randrange(10)
        if kind < 3:
            word = bytes(rng.choice((rng.randrange(256), rng.choice(b" aAcChHsS\0\t!~\x7f\xff\xc0\xdf"))) for _ in range(rng.randrange(1, 9)))
        else:
            page = "".join(rng.sample(pages, 2)) if kind < 8 else "aAbB \t\0!"
            word = "".join(rng.choice((rng.choice(page), rng.choice(page), rng.choice(CLUSTERS), rng.choice("aA  "))) for _ in range(rng.randrange(1, 7)))
            try:
                word = word.encode(names.get(charset, charset), "ignore")
            except LookupError:
                word = word.encode("ascii", "ignore")
        found.append(word)
        # Neighbours: what differs in case or accents, in the end, in its padding.
        if kind % 2 and len(word) < 20:
            tail = rng.choice([b" ", b"  ", b"\0", b"\t", b"a", b"\xff", word[-2:]])
            unit = {"ucs2": 2, "utf16": 2, "utf16le": 2, "utf32": 4}.get(charset, 1)
            found.append(word + (tail if unit == 1 else tail[:1].rjust(unit, b"\0") if charset != "utf16le" else tail[:1].ljust(2, b"\0")))
    return found


@pytest.mark.parametrize("charset", CHARSETS)
def test_indexes_order_and_find_texts_as_innodb_does(db, engine, run, charset):
    rng = random.Random(f"{charset} {SEED}")
    cursor = db.cursor()
    collations = [row[0] for row in run(db, f"SELECT FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY WHERE CHARACTER_SET_NAME = '{charset}' ORDER BY 1")]
    assert collations, charset
    words = [word.hex() for word in texts(rng, charset)]
    for first in range(0, len(collations), COLUMNS):
        some = collations[first:first + COLUMNS]
        kinds = ["VARCHAR(20)" if number % 3 else "CHAR(20)" for number in range(len(some))]
        columns = ", ".join(f"c{n} {kind} CHARACTER SET {charset} COLLATE {one}, KEY (c{n})" for n, (kind, one) in enumerate(zip(kinds, some)))
        for table, its in (("t", engine), ("i", "InnoDB")):
            run(db, f"CREATE OR REPLACE TABLE {table} (id INT PRIMARY KEY, {columns}) ENGINE={its}")
        # What is no text of the character set is cut off, in the first table; the second gets what the first has.
        rows = ", ".join(f"({number}, " + ", ".join([f"x'{word}'"] * len(some)) + ")" for number, word in enumerate(words))
        cursor.execute(f"INSERT IGNORE INTO i VALUES {rows}")
        run(db, "INSERT INTO t SELECT * FROM i")
        for n, one in enumerate(some):
            def both(sql):
                return [run(db, sql.format(table)) for table in "ti"]

            ours, theirs = both(f"SELECT id, HEX(c{n}) FROM {{0}} FORCE INDEX (c{n}) ORDER BY c{n}, id")
            assert ours == theirs, (one, kinds[n], next((at, pair) for at, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]))
            equal = f"SELECT a.id, GROUP_CONCAT(b.id ORDER BY b.id) FROM {{0}} a IGNORE INDEX (c{n}) STRAIGHT_JOIN {{0}} b FORCE INDEX (c{n}) ON b.c{n} = a.c{n} GROUP BY a.id"
            ours, theirs = both(equal)
            assert ours == theirs, (one, kinds[n], [pair for pair in zip(ours, theirs) if pair[0] != pair[1]][:3])
            at = rng.randrange(len(words))
            for compare in (">=", ">", "<", "<="):
                sql = f"SELECT id FROM {{0}} FORCE INDEX (c{n}) WHERE c{n} {compare} CONVERT(x'{words[at]}' USING {charset}) COLLATE {one} ORDER BY id"
                ours, theirs = both(sql)
                assert ours == theirs, (one, kinds[n], sql)


def test_no_character_set_is_missing(db, run):
    there = [row[0] for row in run(db, "SELECT DISTINCT CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE CHARACTER_SET_NAME IS NOT NULL ORDER BY 1")]
    assert sorted(set(there) - {"binary"}) == CHARSETS
