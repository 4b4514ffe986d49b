"""Column types with small pools of values, so that keys collide and conditions match."""

import copy

COLLATIONS = [
    "utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_unicode_520_ci", "utf8mb4_uca1400_ai_ci", "utf8mb4_bin", "utf8mb4_nopad_bin",
    "utf8mb4_unicode_nopad_ci", "utf8mb4_czech_ci", "utf8mb3_general_ci", "latin1_swedish_ci", "latin1_german2_ci", "latin1_bin",
    "latin1_nopad_bin", "latin2_czech_cs", "cp1250_czech_cs", "ucs2_general_ci", "utf16_unicode_ci", "utf32_bin", "gbk_chinese_ci", "sjis_japanese_ci",
    "ascii_general_ci", "tis620_thai_ci", "binary",
]
WORDS = ["", "a", "A", "ab", "aB", "a ", " a", "b", "bb", "B", "ss", "z", "zz", "Zz", "a\t", "a!", "0", "10", "ch", "c", "h", "ab ", "abc", "aaaaaaaaaa"]
ACCENTED = ["ä", "ß", "é", "Ä", "ñ", "ÿ"]

# name: (lowest, highest)
INTEGERS = {
    "TINYINT": (-128, 127), "TINYINT UNSIGNED": (0, 255), "SMALLINT": (-32768, 32767), "SMALLINT UNSIGNED": (0, 65535), "MEDIUMINT": (-(2**23), 2**23 - 1),
    "INT": (-(2**31), 2**31 - 1), "INT UNSIGNED": (0, 2**32 - 1), "BIGINT": (-(2**63), 2**63 - 1), "BIGINT UNSIGNED": (0, 2**64 - 1),
}
# name: values as SQL text. Fractions are sums of powers of two, so sums are exact in any order.
OTHERS = {
    "DECIMAL(10,3)": ["0", "-1.5", "1.500", "12.25", "-9999999.999", "9999999.999", "0.001"],
    "DECIMAL(30,10)": ["0", "1", "-1", "12345678901234567890.0123456789", "-99999999999999999999.9999999999"],
    "DOUBLE": ["0", "1.5", "-2.25", "1000000", "-1e15", "0.125"],
    "FLOAT": ["0", "1.5", "-2.25", "1024", "0.125"],
    "BIT(5)": ["b'0'", "b'1'", "b'10101'", "b'11111'"],
    "BIT(33)": ["b'0'", "b'1'", "b'111111111111111111111111111111111'", "b'1000000000'"],
    "DATE": ["'1000-01-01'", "'2024-02-29'", "'9999-12-31'", "'1970-01-01'", "'2024-03-01'"],
    "DATETIME": ["'1000-01-01 00:00:00'", "'2024-02-29 23:59:59'", "'9999-12-31 23:59:59'", "'2024-03-01 12:00:00'"],
    "DATETIME(6)": ["'1000-01-01 00:00:00.000001'", "'2024-02-29 23:59:59.999999'", "'2024-03-01'"],
    "TIMESTAMP NULL": ["'1971-01-01 00:00:01'", "'2024-02-29 23:59:59'", "'2037-12-31 23:59:59'"],
    "TIMESTAMP(3) NULL": ["'1971-01-01 00:00:01.125'", "'2024-02-29 23:59:59.999'"],
    "TIME": ["'-838:59:59'", "'00:00:00'", "'12:34:56'", "'838:59:59'"],
    "TIME(3)": ["'-838:59:59.000'", "'00:00:00.001'", "'12:34:56.789'", "'-00:00:00.001'"],
    "YEAR": ["1901", "2024", "2155", "0"],
    "ENUM('b','a','c')": ["'a'", "'b'", "'c'"],
    "SET('x','y','z')": ["''", "'x'", "'y,z'", "'x,y,z'"],
    "UUID": ["'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000001'", "'ffffffff-ffff-1fff-bfff-ffffffffffff'"],
    "INET6": ["'::1'", "'::ffff:1.2.3.4'", "'fe80::1'"],
    "INET4": ["'1.2.3.4'", "'0.0.0.0'", "'255.255.255.255'"],
    "BINARY(3)": ["''", "'a'", "x'610062'", "x'ffffff'", "x'6100'"],
    "VARBINARY(12)": ["''", "'a'", "x'6100'", "x'610062'", "x'ffff'", "'A'", "'a '"],
    "BLOB": ["''", "'a'", "x'00'", "x'ff00'", "REPEAT('k', 300)", "REPEAT('w', 20000)"],
}
TEXTS_BY_LENGTH = ["CHAR(4)", "CHAR(20)", "VARCHAR(5)", "VARCHAR(30)", "VARCHAR(300)", "TINYTEXT", "TEXT", "MEDIUMTEXT"]
TEXTS = ["CHAR(4)", "CHAR(20)", "VARCHAR(5)", "VARCHAR(30)", "VARCHAR(300)", "TEXT", "TINYTEXT", "MEDIUMTEXT"]


class Type:
    """`family` says what may be compared with what: "int", "text", or the type's own name."""

    def __init__(self, rng, key=False):
        pick = rng.random()
        self.collation = None
        if pick < 0.42:
            self.name = rng.choice(["INT", "INT", "BIGINT"] if rng.random() < 0.5 else list(INTEGERS))
            low, high = INTEGERS[self.name]
            self.family = "int"
            self.pool = [str(n) for n in (0, 1, 2, 3, 4, 5, 7, 10, 42, 99, 100, high, low, -1, -2) if low <= n <= high]
        elif pick < 0.7:
            self.name = rng.choice(TEXTS)
            self.family = "text"
            self.collation = rng.choice(COLLATIONS)
            self.pool = [quoted(word) for word in WORDS + (ACCENTED if rng.random() < 0.5 else [])]
            if self.name in ("VARCHAR(300)", "TEXT", "MEDIUMTEXT"):
                self.pool += ["REPEAT('k', 250)", "CONCAT(REPEAT('k', 250), 'a')"]
            if self.name == "MEDIUMTEXT":
                self.pool += ["REPEAT('w', 9000)", "REPEAT('W', 70000)"]
        else:
            self.name = rng.choice(list(OTHERS))
            self.family = self.name
            self.pool = OTHERS[self.name]
        self.base = self.name.split("(")[0].split()[0]

    def definition(self):
        if self.collation is None:
            return self.name
        return f"{self.name} CHARACTER SET {self.collation.split('_')[0]} COLLATE {self.collation}"

    def grown(self, rng, keyed):
        """A wider type for the same values. `keyed`: the kind stays the same, because a key may need the length of a part."""
        other = copy.copy(self)
        if self.family != "text":
            other.name = self.name[:-1] + f",'more{rng.randrange(3)}')"
            return other
        at = TEXTS_BY_LENGTH.index(self.name)
        kind = self.name.split("(")[0]
        if rng.random() < 0.6:
            other.name = rng.choice([name for name in TEXTS_BY_LENGTH[at:] if not keyed or (name.split("(")[0] == kind and "TEXT" not in kind) or name == self.name])
        if rng.random() < 0.6:
            charset = self.collation.split("_")[0]
            taken = [charset] + ["utf8mb4"] * (charset == "utf8mb3")
            other.collation = rng.choice([one for one in COLLATIONS if one.split("_")[0] in taken])
        other.base = other.name.split("(")[0].split()[0]
        return other

    def value(self, rng):
        if self.family == "int" and rng.random() < 0.3:
            return str(rng.randrange(0, 120))
        return rng.choice(self.pool)

    def expression(self, rng):
        """A value that a sequence number gives, for bulk loads."""
        step, modulus = rng.choice([1, 3, 7, 13]), rng.choice([2, 5, 23, 100, 120])
        if self.family == "int":
            return f"seq * {step} % {modulus}"
        if self.family == "text" and rng.random() < 0.5:
            return f"CONCAT(CHAR(97 + seq * {step} % 4), seq % {modulus})"
        chosen = [rng.choice(self.pool) for _ in range(rng.randrange(1, 6))]
        return f"ELT(1 + seq * {step} % {len(chosen)}, {', '.join(chosen)})"

    @property
    def long(self):
        return self.base in ("TEXT", "TINYTEXT", "MEDIUMTEXT", "BLOB")

    @property
    def prefixable(self):
        return self.long or self.base in ("CHAR", "VARCHAR", "BINARY", "VARBINARY")

    @property
    def exact(self):
        """Equal values print the same."""
        return self.collation is None or self.collation.endswith("_nopad_bin")


def quoted(word):
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"
