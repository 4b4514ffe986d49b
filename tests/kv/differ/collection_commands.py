"""Random commands on lists, sets, hashes, sorted sets, geo and SORT."""

KEYS = ["x1", "x2", "l1", "l2", "s1", "s2", "s3", "h1", "h2", "z1", "z2", "z3", "g1", "w_1", "w_2", "w_a", "none"]


class CollectionCommands:
    """Random commands. Every family meets keys of other types, wrong numbers and wrong options now and then."""

    def __init__(self, choices):
        self.random = choices

    def key(self, kind):
        if self.random.random() < 0.04:
            return self.random.choice([key for key in KEYS[2:] if key != "g1"])
        return kind + str(self.random.randint(1, 3 if kind in "sz" else 2))

    def element(self):
        roll = self.random.random()
        if roll < 0.5:
            return str(self.random.randint(-3, 20))
        if roll < 0.8:
            return self.random.choice("abcdefgh") * self.random.choice([1, 1, 2])
        if roll < 0.9:
            return self.random.choice(["", "007", "-0", "1.5", "9223372036854775807", "-9223372036854775808", "99999999999999999999", "0x10"])
        if roll < 0.97:
            return self.random.choice("xyz") * self.random.choice([63, 64, 65, 100])
        return "y" * self.random.choice([4000, 8200])

    def member(self):
        return self.random.choice("abcdefghij") if self.random.random() < 0.7 else self.element()

    def index(self):
        if self.random.random() < 0.03:
            return self.random.choice(["x", "1.0", "", "9223372036854775808"])
        return self.random.choice([0, 1, 2, 3, 5, 10, -1, -2, -3, -5, -100, 100])

    def count(self):
        return self.random.choice([0, 1, 1, 2, 3, 10, 100, -1, "x"] if self.random.random() < 0.2 else [1, 2, 3, 5])

    def score(self):
        if self.random.random() < 0.04:
            return self.random.choice(["x", "nan", "inf", "-inf", "", "1e400", "0x10"])
        return self.random.choice(["0", "1", "2", "-1", "1.5", "3.25", "0.1", "1e20", "inf", "1e-7", "123456789012345678"])

    def bound(self):
        roll = self.random.random()
        if roll < 0.05:
            return self.random.choice(["x", "(x", "", "(", "nan"])
        return self.random.choice(["-inf", "+inf", "(1", "(0", "0", "1", "2", "(2", "3", "1e20"])

    def lex(self):
        if self.random.random() < 0.05:
            return self.random.choice(["x", "", "a"])
        return self.random.choice(["-", "+", "[" + self.member(), "(" + self.member()])

    def some(self, make, low=1, high=4):
        return [make() for _ in range(self.random.randint(low, high))]

    def maybe(self, chance, *words):
        return list(words) if self.random.random() < chance else []

    def lists(self):
        key, pick = self.key("l"), self.random.choice
        end = lambda: pick(["LEFT", "RIGHT", "left", "UP"] if self.random.random() < 0.1 else ["LEFT", "RIGHT"])
        return pick([
            lambda: [pick(["LPUSH", "RPUSH"]), key, *self.some(self.element, 1, 6)],
            lambda: [pick(["LPUSH", "RPUSH"]), key, *self.some(self.element, 1, 6)],
            lambda: [pick(["LPUSHX", "RPUSHX"]), key, *self.some(self.element)],
            lambda: [pick(["LPOP", "RPOP"]), key, *self.maybe(0.5, self.count())],
            lambda: ["LRANGE", key, self.index(), self.index()],
            lambda: ["LINDEX", key, self.index()],
            lambda: ["LSET", key, self.index(), self.element()],
            lambda: ["LINSERT", key, pick(["BEFORE", "AFTER", "x"]), self.element(), self.element()],
            lambda: ["LREM", key, pick([0, 1, -1, 2, -2]), self.element()],
            lambda: ["LTRIM", key, self.index(), self.index()] if self.random.random() < 0.3 else ["LLEN", key],
            lambda: ["LPOS", key, self.element(), *self.maybe(0.4, "RANK", self.index()), *self.maybe(0.4, "COUNT", self.count()), *self.maybe(0.3, "MAXLEN", self.count())],
            lambda: ["LMOVE", key, self.key("l"), end(), end()],
            lambda: ["RPOPLPUSH", key, self.key("l")],
            lambda: ["LMPOP", pick([1, 2, 2, 0, "x"]), key, self.key("l"), end(), *self.maybe(0.5, "COUNT", self.count())],
            lambda: ["BLPOP", key, self.key("l"), "0.01"],
            lambda: ["BLMOVE", key, self.key("l"), end(), end(), pick(["0.01", "-1", "x"])],
            lambda: ["BLMPOP", "0.01", 1, key, end(), *self.maybe(0.5, "COUNT", self.count())],
            lambda: ["BRPOPLPUSH", key, self.key("l"), "0.01"],
        ])()

    def sets(self):
        key, pick = self.key("s"), self.random.choice
        return pick([
            lambda: ["SADD", key, *self.some(self.element, 1, 8)],
            lambda: ["SADD", key, *self.some(lambda: self.random.randint(0, 700), 1, 40)],
            lambda: ["SREM", key, *self.some(self.element)],
            lambda: ["SISMEMBER", key, self.element()],
            lambda: ["SMISMEMBER", key, *self.some(self.element)],
            lambda: ["SCARD", key],
            lambda: ["SMEMBERS", key],
            lambda: ["SMOVE", key, self.key("s"), self.element()],
            lambda: ["SRANDMEMBER", key, *self.maybe(0.7, self.count())],
            lambda: [pick(["SINTER", "SUNION", "SDIFF"]), *self.some(lambda: self.key("s"))],
            lambda: [pick(["SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"]), self.key("s"), *self.some(lambda: self.key("s"))],
            lambda: ["SINTERCARD", pick([1, 2, 3, 0]), key, self.key("s"), *self.maybe(0.4, "LIMIT", self.count())],
            lambda: ["SSCAN", key, 0, "COUNT", 2000, *self.maybe(0.3, "MATCH", pick(["*", "1*", "[a-c]*", "?"]))],
            lambda: ["OBJECT", "ENCODING", key],
            lambda: ["SPOP", key, 100000] if self.random.random() < 0.1 else ["SCARD", key],
        ])()

    def hashes(self):
        key, pick = self.key("h"), self.random.choice
        return pick([
            lambda: [pick(["HSET", "HMSET"]), key, *self.some(lambda: self.member(), 2, 7)],
            lambda: ["HSET", key, self.member(), self.element()],
            lambda: ["HSETNX", key, self.member(), self.element()],
            lambda: ["HGET", key, self.member()],
            lambda: ["HMGET", key, *self.some(self.member)],
            lambda: ["HDEL", key, *self.some(self.member)],
            lambda: ["HLEN", key],
            lambda: ["HSTRLEN", key, self.member()],
            lambda: ["HEXISTS", key, self.member()],
            lambda: [pick(["HKEYS", "HVALS", "HGETALL"]), key],
            lambda: ["HINCRBY", key, self.member(), self.index()],
            lambda: ["HINCRBYFLOAT", key, pick("abc"), pick(["1.5", "-0.25", "3", "1e3", "x", "inf", "nan", ""])],
            lambda: ["HRANDFIELD", key, *self.maybe(0.7, self.count(), *self.maybe(0.5, pick(["WITHVALUES", "x"])))],
            lambda: ["HSCAN", key, 0, "COUNT", 2000, *self.maybe(0.3, "MATCH", pick(["*", "[a-c]*", "?"]))],
            lambda: ["OBJECT", "ENCODING", key],
        ])()

    def zadd_options(self):
        return [word for word in ["NX", "XX", "GT", "LT", "CH", "INCR"] if self.random.random() < 0.12]

    def pairs(self):
        return [item for _ in range(self.random.randint(1, 4)) for item in (self.score(), self.member())]

    def combine(self):
        weights = self.maybe(0.4, "WEIGHTS", self.score(), self.score())
        return weights + self.maybe(0.4, "AGGREGATE", self.random.choice(["SUM", "MIN", "MAX", "x"]))

    def zsets(self):
        key, pick = self.key("z"), self.random.choice
        other = self.key(pick("zzzs"))
        # A range of members is only defined among equal scores.
        equal = pick(["x1", "x2"])
        limit = self.maybe(0.3, "LIMIT", self.index(), self.index())
        scores = self.maybe(0.5, "WITHSCORES")
        return pick([
            lambda: ["ZADD", key, *self.zadd_options(), *self.pairs()],
            lambda: ["ZADD", key, *self.zadd_options(), *self.pairs()],
            lambda: ["ZADD", key, *self.pairs()],
            lambda: ["ZINCRBY", key, self.score(), self.member()],
            lambda: ["ZREM", key, *self.some(self.member)],
            lambda: ["ZCARD", key],
            lambda: ["ZSCORE", key, self.member()],
            lambda: ["ZMSCORE", key, *self.some(self.member)],
            lambda: [pick(["ZRANK", "ZREVRANK"]), key, self.member()],
            lambda: [pick(["ZRANGE", "ZREVRANGE"]), key, self.index(), self.index(), *scores],
            lambda: ["ZRANGE", key, self.bound(), self.bound(), "BYSCORE", *self.maybe(0.4, "REV"), *limit, *scores],
            lambda: ["ZRANGE", equal, self.lex(), self.lex(), "BYLEX", *self.maybe(0.4, "REV"), *limit, *self.maybe(0.1, "WITHSCORES")],
            lambda: ["ZRANGE", key, self.index(), self.index(), *self.maybe(0.5, "REV"), *self.maybe(0.2, *limit), *scores],
            lambda: ["ZRANGESTORE", self.key("z"), key, self.bound(), self.bound(), "BYSCORE", *self.maybe(0.4, "REV"), *limit],
            lambda: [pick(["ZRANGEBYSCORE", "ZREVRANGEBYSCORE"]), key, self.bound(), self.bound(), *scores, *limit],
            lambda: [pick(["ZRANGEBYLEX", "ZREVRANGEBYLEX"]), equal, self.lex(), self.lex(), *limit],
            lambda: ["ZCOUNT", key, self.bound(), self.bound()],
            lambda: ["ZLEXCOUNT", equal, self.lex(), self.lex()],
            lambda: ["ZREMRANGEBYRANK", key, self.index(), self.index()] if self.random.random() < 0.3 else ["ZCARD", key],
            lambda: ["ZREMRANGEBYSCORE", key, self.bound(), self.bound()] if self.random.random() < 0.3 else ["ZCARD", key],
            lambda: ["ZREMRANGEBYLEX", equal, self.lex(), self.lex()] if self.random.random() < 0.3 else ["ZCARD", equal],
            lambda: ["ZADD", equal, *[item for _ in range(self.random.randint(1, 5)) for item in ("0", self.member())]],
            lambda: [pick(["ZPOPMIN", "ZPOPMAX"]), key, *self.maybe(0.5, self.count())],
            lambda: [pick(["BZPOPMIN", "BZPOPMAX"]), key, self.key("z"), "0.01"],
            lambda: ["ZMPOP", pick([1, 2, 2, 0]), key, self.key("z"), pick(["MIN", "MAX", "x"]), *self.maybe(0.5, "COUNT", self.count())],
            lambda: ["BZMPOP", "0.01", 1, key, pick(["MIN", "MAX"]), *self.maybe(0.5, "COUNT", self.count())],
            lambda: ["ZRANDMEMBER", key, *self.maybe(0.7, self.count(), *self.maybe(0.5, "WITHSCORES"))],
            lambda: [pick(["ZUNION", "ZINTER"]), 2, key, other, *self.combine(), *scores],
            lambda: ["ZDIFF", pick([2, 2, 1, 0, 3, "x"]), key, other, *scores],
            lambda: [pick(["ZUNIONSTORE", "ZINTERSTORE"]), self.key("z"), 2, key, other, *self.combine()],
            lambda: ["ZDIFFSTORE", self.key("z"), 2, key, other],
            lambda: ["ZINTERCARD", pick([2, 2, 0, 5]), key, other, *self.maybe(0.5, "LIMIT", self.count())],
            lambda: ["ZSCAN", key, 0, "COUNT", 2000, *self.maybe(0.3, "MATCH", pick(["*", "[a-c]*", "?"]))],
            lambda: ["OBJECT", "ENCODING", key],
        ])()

    def place(self):
        if self.random.random() < 0.03:
            return [self.random.choice(["200", "x", "-181"]), "10"]
        near = self.random.random() < 0.8
        width, height = (2, 2) if near else (180, 85)
        return ["%.6f" % self.random.uniform(-width, width), "%.6f" % self.random.uniform(-height, height)]

    def distance(self):
        return self.random.choice(["1", "50", "100.5", "500", "3000", "-1", "x"] if self.random.random() < 0.1 else ["50", "100.5", "200", "1000"])

    def unit(self):
        return self.random.choice(["m", "km", "km", "mi", "ft", "KM", "x"] if self.random.random() < 0.1 else ["km", "mi"])

    def geo_options(self):
        order = self.random.choice([["ASC"], ["DESC"], []])
        count = self.maybe(0.3, "COUNT", self.count(), *self.maybe(0.2, "ANY"))
        extras = [word for word in ["WITHDIST", "WITHCOORD", "WITHHASH"] if self.random.random() < 0.3]
        return order + count + extras

    def geo_search(self):
        center = self.random.choice([["FROMMEMBER", self.member()], ["FROMLONLAT", *self.place()], []] if self.random.random() < 0.1 else [["FROMLONLAT", *self.place()]])
        shape = self.random.choice([["BYRADIUS", self.distance(), self.unit()], ["BYBOX", self.distance(), self.distance(), self.unit()]])
        return center + shape

    def geo(self):
        pick, key = self.random.choice, "g1"
        add = lambda: ["GEOADD", key, *self.maybe(0.1, pick(["NX", "XX", "CH"])), *[item for _ in range(self.random.randint(1, 4)) for item in (*self.place(), self.member())]]
        return pick([
            add, add, add,
            lambda: ["GEOPOS", key, *self.some(self.member)],
            lambda: ["GEOHASH", key, *self.some(self.member)],
            lambda: ["GEODIST", key, self.member(), self.member(), *self.maybe(0.5, self.unit())],
            lambda: ["GEOSEARCH", key, *self.geo_search(), *self.geo_options()],
            lambda: ["GEOSEARCH", key, *self.geo_search(), *self.geo_options()],
            lambda: ["GEOSEARCHSTORE", self.key("z"), key, *self.geo_search(), *self.maybe(0.3, "STOREDIST")],
            lambda: ["GEORADIUS", key, *self.place(), self.distance(), self.unit(), *self.geo_options()],
            lambda: ["GEORADIUSBYMEMBER", key, self.member(), self.distance(), self.unit(), *self.geo_options()],
            lambda: ["GEORADIUS", key, *self.place(), self.distance(), self.unit(), "STORE", self.key("z")],
        ])()

    def sort(self):
        pick = self.random.choice
        if self.random.random() < 0.3:
            return pick([["SET", "w_" + self.member()[:40], self.element()], ["HSET", "hw_" + self.member()[:40], "f", self.element()]])
        # Redis converts a sorted set that is sorted to a skip list; this server doesn't, so no set whose encoding is compared.
        key = pick(["x1", "x2", self.key("l"), self.key("s")])
        options = self.maybe(0.5, "BY", pick(["w_*", "hw_*->f", "nosort", "w_*->f"])) + self.maybe(0.3, "LIMIT", self.index(), self.index())
        gets = self.maybe(0.3, "GET", pick(["#", "w_*", "hw_*->f", "x"]))
        flags = self.maybe(0.6, "ALPHA") + self.maybe(0.4, pick(["ASC", "DESC"]))
        # The order of equal weights, and of sets without one, is open.
        if "BY" in options and "nosort" not in options:
            return ["SORT", key, "LIMIT", 0, 0, *flags]
        if "nosort" in options and key[0] != "l":
            return ["SORT", key, *flags]
        store = self.maybe(0.2, "STORE", self.key("l"))
        return ["SORT", key, *options, *gets, *flags, *store] if store or self.random.random() < 0.7 else ["SORT_RO", key, *options, *gets, *flags]

    def other(self):
        pick = self.random.choice
        return pick([["DEL", pick(KEYS)], ["TYPE", pick(KEYS)], ["SET", pick(KEYS), "text"] if self.random.random() < 0.1 else ["EXISTS", pick(KEYS)]])

    def next(self):
        """The next command's arguments, as text."""
        family = self.random.choice([self.lists, self.sets, self.hashes, self.zsets, self.zsets, self.geo, self.sort, self.other])
        return [str(arg) for arg in family()]
