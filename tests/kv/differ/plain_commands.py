"""Random commands on strings, bits, HyperLogLogs, streams, and on keys whatever their type."""

# A HyperLogLog is not appended to: how far Redis reads what is damaged is its own affair.
KEYS = ["a1", "a2", "a3", "n1", "n2", "b1", "b2", "b3", "t1", "t2", "t3"]
LATE = 4_000_000_000


class PlainCommands:
    def __init__(self, choices):
        self.random = choices
        self.time = 1

    def maybe(self, chance, *words):
        return list(words) if self.random.random() < chance else []

    def some(self, make, low=1, high=4):
        return [make() for _ in range(self.random.randint(low, high))]

    def key(self, kind, count=3):
        if self.random.random() < 0.04:
            return self.random.choice(KEYS)
        return kind + str(self.random.randint(1, count))

    def text(self):
        roll = self.random.random()
        if roll < 0.4:
            return str(self.random.randint(-5, 300))
        if roll < 0.6:
            return self.random.choice(["", "a", "hello", "1.5", "-0", "0x1", " 7", "9223372036854775807", "-9223372036854775808", "1e3", "ÿé"])
        if roll < 0.95:
            return self.random.choice("xyz") * self.random.choice([1, 3, 43, 44, 45, 64, 300])
        return "v" * self.random.choice([5000, 20000, 70000])

    def index(self):
        return self.random.choice([0, 1, 2, 5, 10, 44, -1, -2, -5, -100, 100, "x"] if self.random.random() < 0.1 else [0, 1, 3, 7, -1, -4])

    def late(self):
        """An expiry time that does not come. Never counted from now: the two servers would have it by a millisecond apart."""
        pick = self.random.choice
        return pick([["PXAT", LATE * 1000 + self.random.randint(0, 9)], ["EXAT", LATE + self.random.randint(0, 9)], ["KEEPTTL"], ["EX", 0], ["PX", -1], ["EX", "x"]])

    def strings(self):
        key, pick = self.key("a"), self.random.choice
        return pick([
            lambda: ["SET", key, self.text(), *self.maybe(0.3, pick(["NX", "XX", "GET"])), *(self.late() if self.random.random() < 0.2 else [])],
            lambda: ["SET", key, self.text()],
            lambda: ["SETNX", key, self.text()],
            lambda: [pick(["SETEX", "PSETEX"]), key, pick([0, -1, "x"]), self.text()],
            lambda: ["GET", key],
            lambda: ["GETEX", key, *self.maybe(0.5, *pick([["PERSIST"], ["EXAT", LATE], ["EX", "x"], ["PXAT", LATE * 1000]]))],
            lambda: ["GETDEL", key],
            lambda: ["GETSET", key, self.text()],
            lambda: ["APPEND", key, self.text()],
            lambda: ["STRLEN", key],
            lambda: ["SETRANGE", key, pick([0, 1, 5, 100, 600, -1, 536870912]), pick(["", "abc", "z" * 50])],
            lambda: [pick(["GETRANGE", "SUBSTR"]), key, self.index(), self.index()],
            lambda: ["MGET", *self.some(lambda: self.key("a"))],
            lambda: [pick(["MSET", "MSETNX"]), *[item for _ in range(self.random.randint(1, 3)) for item in (self.key("a"), self.text())]],
            lambda: ["LCS", key, self.key("a"), *self.maybe(0.2, "LEN"), *self.maybe(0.4, "IDX"), *self.maybe(0.3, "MINMATCHLEN", self.index()), *self.maybe(0.3, "WITHMATCHLEN")]
            if self.random.random() < 0.3 else ["STRLEN", key],
            lambda: ["OBJECT", "ENCODING", key],
        ])()

    def numbers(self):
        key, pick = self.key("n", 2), self.random.choice
        step = pick([1, 2, -1, 100, -100, "9223372036854775807", "-9223372036854775808", "x", "1.5"])
        return pick([
            lambda: [pick(["INCR", "DECR"]), key],
            lambda: [pick(["INCRBY", "DECRBY"]), key, step],
            lambda: ["SET", key, pick(["0", "5", "-7", "1.25", "x", "9223372036854775807", " 1", "007", "1e2"])],
            lambda: ["GET", key],
            self.floats,
        ])()

    def floats(self):
        # Redis adds floats as 80 bits where the processor has them, and shows it. So these keys only hold what 64 bits hold.
        key, pick = self.random.choice(["f1", "f2"]), self.random.choice
        return pick([
            lambda: ["INCRBYFLOAT", key, pick(["1.5", "-0.25", "3", "1e3", "x", "inf", "nan", ""])],
            lambda: ["INCRBYFLOAT", pick(["l1", "z1", "none"]), "1.5"],
            lambda: ["SET", key, pick(["0", "5", "1.25", "x", " 1", "1e2"])],
            lambda: ["GET", key],
        ])()

    def bits(self):
        key, pick = self.key("b"), self.random.choice
        number = lambda: pick([0, 1, -1, 5, -7, 100, 255, 256, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 62)])
        field = lambda: pick(["u8", "i8", "u1", "i64", "u63", "i5", "u16", "i13", "u64", "x"])
        place = lambda: pick(["#3", "#0", self.random.randint(0, 90), -1])
        part = lambda: pick([["GET", field(), place()], ["SET", field(), place(), number()], ["INCRBY", field(), place(), number()], ["OVERFLOW", pick(["WRAP", "SAT", "FAIL", "x"])]])
        return pick([
            lambda: ["SETBIT", key, pick([self.random.randint(0, 200), self.random.randint(0, 9000), -1, 1 << 40]), pick([0, 1, 1, 2])],
            lambda: ["GETBIT", key, self.random.randint(0, 300)],
            lambda: ["BITCOUNT", key, *self.maybe(0.6, self.random.randint(-30, 30), self.random.randint(-30, 30), *self.maybe(0.5, pick(["BIT", "BYTE", "x"])))],
            lambda: ["BITPOS", key, pick([0, 1, 1, 2]), *self.maybe(0.6, self.random.randint(-30, 30), *self.maybe(0.6, self.random.randint(-90, 90), *self.maybe(0.5, "BIT")))],
            lambda: ["BITOP", *pick([["AND", "b1", "b2", "b3"], ["OR", "b2", "b1", "b3"], ["XOR", "b3", "b1", "b2"], ["NOT", "b1", "b2"], ["NOT", "b1", "b2", "b3"], ["OR", "b1", "none"]])],
            lambda: [pick(["BITFIELD", "BITFIELD", "BITFIELD_RO"]), key, *[item for _ in range(self.random.randint(1, 4)) for item in part()]],
            lambda: ["GET", key],
        ])()

    def counters(self):
        # Of keys of other types only those that are no strings.
        counter = lambda: self.random.choice(["p1", "p2"] if self.random.random() < 0.97 else ["l1", "t1"])
        key, pick = counter(), self.random.choice
        return pick([
            lambda: ["PFADD", key, *self.some(lambda: self.random.randint(0, 3000), 0, 60)],
            lambda: ["PFCOUNT", *self.some(counter, 1, 2)],
            lambda: ["PFMERGE", key, *self.some(counter, 0, 2)],
        ])()

    def id(self):
        return "%d-%d" % (self.random.randint(0, 60), self.random.randint(0, 3))

    def bound(self):
        return self.random.choice(["-", "+", "0", "5", self.id(), "(" + self.id(), "bad", "0-0", "7-*"])

    def fresh_id(self):
        self.time += self.random.randint(0, 1)
        return self.random.choice(["%d-*" % self.time, "%d-%d" % (self.time, self.random.randint(0, 9)), "%d-*" % self.time])

    def trimmed(self):
        return self.random.choice([["MAXLEN", self.random.randint(0, 40)], ["MAXLEN", "~", self.random.randint(0, 40)], ["MINID", self.id()], ["MINID", "~", self.id(), "LIMIT", 5],
                                   ["MAXLEN", "=", 3], ["MAXLEN", 3, "LIMIT", 1]])

    def groups(self, key, group, consumer):
        pick = self.random.choice
        return pick([
            lambda: ["XGROUP", "CREATE", key, group, pick([self.id(), "$", "0"]), *self.maybe(0.4, "MKSTREAM"), *self.maybe(0.2, "ENTRIESREAD", self.random.randint(-2, 30))],
            lambda: ["XGROUP", "CREATE", key, group, "0", "MKSTREAM"],
            lambda: ["XGROUP", "SETID", key, group, self.id(), *self.maybe(0.3, "ENTRIESREAD", self.random.randint(-1, 30))],
            lambda: ["XGROUP", "DESTROY", key, group] if self.random.random() < 0.3 else ["XINFO", "GROUPS", key],
            lambda: ["XGROUP", pick(["CREATECONSUMER", "DELCONSUMER"]), key, group, consumer],
            lambda: ["XREADGROUP", "GROUP", group, consumer, *self.maybe(0.5, "COUNT", self.random.randint(0, 4)), *self.maybe(0.2, "NOACK"), "STREAMS", key, pick([">", ">", ">", "0", self.id(), "$"])],
            lambda: ["XREADGROUP", "GROUP", group, consumer, "COUNT", 2, "STREAMS", key, ">"],
            lambda: ["XACK", key, group, *self.some(self.id, 1, 8)],
            lambda: ["XCLAIM", key, group, consumer, 0, *self.some(self.id, 1, 5), *pick([[], ["JUSTID"], ["FORCE"], ["FORCE", "RETRYCOUNT", 3], ["LASTID", self.id()], ["BAD"]])],
            lambda: ["XAUTOCLAIM", key, group, consumer, 0, self.bound(), *self.maybe(0.3, "COUNT", self.random.randint(0, 4)), *self.maybe(0.2, "JUSTID")],
            lambda: ["XPENDING", key, group, *pick([[], ["-", "+", 10, consumer], [self.bound(), self.bound(), 5]])],
            lambda: ["XINFO", "CONSUMERS", key, group],
        ])()

    def streams(self):
        key, pick = self.key("t"), self.random.choice
        add = lambda: ["XADD", key, *self.maybe(0.1, "NOMKSTREAM"), *(self.trimmed() if self.random.random() < 0.2 else []), self.fresh_id(), *self.some(self.text, 2, 2), *self.maybe(0.3, "f", "v")]
        return pick([
            add, add, add,
            lambda: [pick(["XRANGE", "XREVRANGE"]), key, self.bound(), self.bound(), *self.maybe(0.4, "COUNT", self.random.randint(-1, 5))],
            lambda: ["XDEL", key, *self.some(self.id, 1, 6)],
            lambda: ["XTRIM", key, *self.trimmed()],
            lambda: ["XREAD", *self.maybe(0.5, "COUNT", self.random.randint(0, 4)), "STREAMS", *pick([[key, self.id()], ["t1", "t2", self.id(), "0"], [key, "$"], [key, ">"]])],
            lambda: ["XLEN", key],
            lambda: ["XINFO", "STREAM", key],
            lambda: ["XSETID", key, self.id(), *self.maybe(0.3, "ENTRIESADDED", self.random.randint(0, 50)), *self.maybe(0.2, "MAXDELETEDID", self.id())],
            lambda: self.groups(key, pick(["g1", "g2"]), pick(["c1", "c2", "c3"])),
            lambda: self.groups(key, pick(["g1", "g2"]), pick(["c1", "c2", "c3"])),
            lambda: self.groups(key, pick(["g1", "g2"]), pick(["c1", "c2", "c3"])),
        ])()

    def keys(self, names):
        key, other, pick = self.random.choice(names), self.random.choice(names), self.random.choice
        return pick([
            lambda: [pick(["DEL", "UNLINK", "EXISTS", "TOUCH"]), *self.some(lambda: pick(names), 1, 2)],
            lambda: ["TYPE", key],
            lambda: ["EXPIREAT", key, LATE + self.random.randint(0, 5), *self.maybe(0.4, pick(["NX", "XX", "GT", "LT", "x"]))],
            lambda: ["PEXPIREAT", key, LATE * 1000 + self.random.randint(0, 5), *self.maybe(0.4, pick(["NX", "XX", "GT", "LT"]))],
            lambda: [pick(["EXPIRE", "PEXPIRE"]), key, pick([-1, 0, "x", "9223372036854775807"])] if self.random.random() < 0.2 else ["PERSIST", key],
            lambda: [pick(["EXPIRETIME", "PEXPIRETIME"]), key],
            lambda: [pick(["RENAME", "RENAMENX"]), key, other],
            lambda: ["COPY", key, other, *self.maybe(0.4, "REPLACE"), *self.maybe(0.2, "DB", pick([0, 1, 16]))],
            lambda: ["MOVE", key, pick([0, 1, "x"])],
            lambda: ["SELECT", pick([0, 0, 0, 1])],
            lambda: ["DBSIZE"],
            lambda: ["KEYS", pick(["*", "a*", "?1", "[ab]*", "none"])],
            lambda: ["RANDOMKEY"],
            lambda: [pick(["FLUSHDB", "FLUSHALL"])] if self.random.random() < 0.03 else ["DBSIZE"],
            lambda: ["SCAN", 0, "COUNT", 100000, *self.maybe(0.3, "MATCH", pick(["a*", "*1"])), *self.maybe(0.3, "TYPE", pick(["string", "list", "hash", "stream"]))],
        ])()

    def next(self, names):
        """The next command's arguments, as text. `names`: keys of all types."""
        family = self.random.choice([self.strings, self.strings, self.numbers, self.bits, self.counters, self.streams, self.streams, lambda: self.keys(names)])
        return [str(arg) for arg in family()]
