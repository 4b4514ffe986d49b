"""Every type and many collations: an InnoDB table and the engine's with the same values give the same rows in the same
order, through every index, forward, backward, by range, index only; and after changes.

TERRACE_SEED repeats a run.
"""

import os
import random

import pymysql
import pytest

SEED = int(os.environ.get("TERRACE_SEED", 1))
ROWS = 100

ASCII = list("aAbBcCzZ019 \t!-_~")
LATIN = ASCII + list("\u00e4\u00c4\u00f6\u00df\u00e9\u00c9\u00c0\u00e0\u00f1\u00e7\u00a0")
# Contractions, expansions, what weighs nothing, what weighs less than a space, more than 16 bits.
UNICODE = LATIN + list("\u00f8\u00e5\u00c6\u00e6\u0153\u03c3\u03c2\u03a3\u0131\u0130\u042f\u044f\u65e5\u672c\uff76\u304b\u309b\uac00\ud7a3") + [
    "\u0301", "\u3000", "ch", "ll", "d\u017e", "Dz", "\ufdfa", "\U0001f600", "\U0001d11e", "\u200d", "\x01", "\x00"]


def text(length, characters):
    def make(rng):
        value = "".join(rng.choice(characters) for _ in range(rng.randint(0, length)))
        value += " " * rng.choice([0, 0, 0, 1, 3]) + rng.choice([""] * 9 + ["\t"])
        return value[:length]
    return make


def binary(length):
    return lambda rng: bytes(rng.choice([0, 1, 32, 65, 254, 255, rng.randint(0, 255)]) for _ in range(rng.randint(0, length)))


def whole(low, high):
    return lambda rng: rng.choice([low, high, 0, 1, rng.randint(low, high), rng.randint(low, high)])


def real(rng):
    return rng.choice([0.0, -0.0, 1.5, -1.5, 1e-30, -1e-30, 3.4e38, -3.4e38, rng.uniform(-1e6, 1e6), rng.uniform(-1, 1)])


def moment(rng):
    return (f"{rng.randint(1971, 2037):04}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02} "
            f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}.{rng.choice([0, 1, 999999, rng.randint(0, 999999)]):06}")


def duration(rng):
    return f"{rng.choice(['', '-'])}{rng.randint(0, 838):03}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}.{rng.randint(0, 999999):06}"


TYPES = {
    "float": real, "double": lambda rng: rng.choice([real(rng), 1.7e308, -1.7e308, 5e-324]),
    "decimal(20,6)": lambda rng: f"{rng.randint(-10**13, 10**13)}.{rng.randint(0, 999999):06}",
    "decimal(5,0)": lambda rng: rng.randint(-99999, 99999),
    "decimal(65,30) unsigned": lambda rng: rng.random() * 10 ** rng.randint(0, 30),
    "date": lambda rng: moment(rng)[:10], "year": lambda rng: rng.randint(1901, 2155),
    "bit(1)": lambda rng: rng.randint(0, 1), "bit(13)": lambda rng: rng.randint(0, 8191), "bit(64)": lambda rng: rng.getrandbits(64),
    "enum('b','a','c')": lambda rng: rng.choice("abc"),
    "set('x','y','z','w')": lambda rng: ",".join(rng.sample("xyzw", rng.randint(0, 4))),
    "binary(5)": binary(5), "varbinary(20)": binary(20), "varbinary(300)": binary(40), "blob": binary(30),
    "inet6": lambda rng: rng.choice(["::1", "::ffff:1.2.3.4", f"2001:db8::{rng.randint(0, 65535):x}"]),
    "uuid": lambda rng: f"{rng.getrandbits(32):08x}-{rng.getrandbits(16):04x}-1{rng.getrandbits(12):03x}-8{rng.getrandbits(12):03x}-{rng.getrandbits(48):012x}",
    "json": lambda rng: '{"a":%d}' % rng.randint(0, 9),
}
for name, bits in (("tinyint", 8), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64)):
    TYPES[name] = whole(-2 ** (bits - 1), 2 ** (bits - 1) - 1)
    TYPES[name + " unsigned"] = whole(0, 2 ** bits - 1)
for digits in (0, 3, 6):
    TYPES[f"datetime({digits})"] = TYPES[f"timestamp({digits})"] = moment
    TYPES[f"time({digits})"] = duration

UCA = ["unicode_ci", "unicode_520_ci", "unicode_nopad_ci", "german2_ci", "czech_ci", "spanish2_ci", "hungarian_ci", "danish_ci",
       "thai_520_w2", "croatian_ci", "myanmar_ci"]
COLLATIONS = {
    "latin1": ["latin1_swedish_ci", "latin1_bin", "latin1_general_cs", "latin1_german2_ci", "latin1_swedish_nopad_ci"],
    "utf8mb3": ["utf8mb3_general_ci", "utf8mb3_bin", "utf8mb3_unicode_ci"],
    "utf8mb4": ["utf8mb4_" + name for name in ["general_ci", "bin", "nopad_bin", "general_nopad_ci", *UCA]] + [
        "uca1400_ai_ci", "uca1400_as_cs", "uca1400_nopad_as_cs", "uca1400_nopad_ai_ci", "uca1400_spanish2_as_cs"],
    "ucs2": ["ucs2_general_ci", "ucs2_bin"], "utf16": ["utf16_general_ci", "utf16_bin"], "utf16le": ["utf16le_general_ci"],
    "utf32": ["utf32_unicode_ci", "utf32_bin"], "sjis": ["sjis_japanese_ci"], "gbk": ["gbk_chinese_ci"], "cp932": ["cp932_bin"],
    "big5": ["big5_chinese_ci"], "euckr": ["euckr_korean_ci"], "cp1250": ["cp1250_czech_cs"], "tis620": ["tis620_thai_ci"],
}
# These in every kind of column, the others in a VARCHAR and a CHAR.
FULL = {"latin1_swedish_ci", "utf8mb4_general_ci", "utf8mb4_bin", "uca1400_ai_ci", "uca1400_nopad_as_cs"}
for charset, names in COLLATIONS.items():
    characters = LATIN if charset == "latin1" else UNICODE
    for name in names:
        for column in ["varchar(12)", "char(10)"] + (["varchar(300)", "text"] if name in FULL else []):
            TYPES[f"{column} character set {charset} collate {name}"] = text(10, characters)


class Both:
    """Says everything to both engines."""

    def __init__(self, connection, engine):
        self.cursor, self.engine = connection.cursor(), engine
        self.cursor.execute("SET sql_mode = ''")
        self.cursor.execute("SET NAMES utf8mb4")

    def one(self, engine, statement, arguments):
        try:
            self.cursor.execute(statement.replace("@", engine.lower()), arguments)
            return self.cursor.fetchall() or self.cursor.rowcount
        except pymysql.err.Error as error:
            # The tables' names differ.
            return ("error", error.args[0])

    def same(self, statement, *arguments):
        theirs = self.one("InnoDB", statement, arguments or None)
        ours = self.one(self.engine, statement, arguments or None)
        assert ours == theirs, (SEED, statement, arguments)


@pytest.mark.parametrize("column", TYPES)
def test_orders_ranges_and_bytes_are_innodbs(db, engine, column):
    rng = random.Random(f"{SEED} {column}")
    both = Both(db, engine)
    key = "v(7)" if column.startswith(("text", "blob", "json")) else "v"
    seen = "v" if column in ("float", "double") else "hex(v)"
    for name in ("InnoDB", engine):
        for table in (f"t_@ (id int primary key, w int, v {column} null, key k ({key}), key kd ({key} desc), key kw (w, {key}))",
                      f"p_@ (v {column} not null, w int, primary key ({key}), key kw (w))",
                      f"u_@ (w int, v {column} null, unique uv ({key}))"):
            both.one(name, f"create table {table} engine={name}", None)
    values = [TYPES[column](rng) if rng.random() > 0.06 else None for _ in range(ROWS)]
    for number, value in enumerate(values):
        both.same("insert into t_@ values (%s, %s, %s)", number, number % 5, value)
        both.same("insert ignore into u_@ values (%s, %s)", number, value)
        if value is not None:
            both.same("insert ignore into p_@ values (%s, %s)", value, number % 5)
    for statement in (f"select id, w, {seen} from t_@ order by id", f"select id, {seen} from t_@ force index (k) order by v, id",
                      f"select id, {seen} from t_@ force index (k) order by v desc, id desc",
                      f"select id, {seen} from t_@ force index (kd) order by v desc, id",
                      f"select {seen} from t_@ force index (kw) where w = 3 order by v, id",
                      f"select w, {seen} from p_@ order by v", f"select w, {seen} from p_@ order by v desc",
                      f"select w, {seen} from p_@ force index (kw) where w = 2 order by v",
                      f"select w, {seen} from u_@ order by w",
                      f"select count(distinct v), min({seen}), max({seen}) from t_@ force index (k)",
                      "select v, count(*) from t_@ force index (k) group by v order by v"):
        both.same(statement)
    for _ in range(4):
        one, other = rng.choice(values), rng.choice(values)
        for sign in ("=", ">", ">=", "<", "<=", "<=>"):
            both.same(f"select id, {seen} from t_@ force index (k) where v {sign} %s order by v, id", one)
            both.same(f"select id, {seen} from t_@ force index (kd) where v {sign} %s order by v desc, id", one)
        both.same(f"select w, {seen} from p_@ where v = %s", one)
        both.same(f"select w, {seen} from p_@ where v between %s and %s order by v desc", one, other)
        both.same("select id from t_@ force index (kw) where w = 2 and v >= %s order by v desc, id desc", one)
    for _ in range(6):
        old, new = rng.choice(values), TYPES[column](rng)
        both.same("update ignore u_@ set v = %s where v = %s", new, old)
        both.same("update ignore p_@ set v = %s where v = %s", new, old)
        both.same("delete from t_@ where v = %s and w = 1", old)
        both.same("replace into u_@ values (1000, %s)", new)
        both.same("insert into p_@ values (%s, 7) on duplicate key update w = w + 10", new)
    for table in "tpu":
        both.same(f"select w, {seen} from {table}_@ order by w, v, {seen}")
        both.cursor.execute(f"check table {table}_{engine.lower()}")
        assert both.cursor.fetchall()[-1][3] == "OK"
