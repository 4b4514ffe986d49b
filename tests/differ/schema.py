"""Random tables: columns, keys, and the properties that the statements need."""

from statement import Parts, of
from values import INTEGERS, Type


class Column:
    def __init__(self, name, kind, nullable=True, generated=None, extra=""):
        self.name, self.type, self.nullable, self.generated, self.extra = name, kind, nullable, generated, extra

    def definition(self):
        if self.generated:
            return f"{self.name} {self.type.definition()} AS ({self.generated[0]}) {self.generated[1]}"
        return f"{self.name} {self.type.definition()}{'' if self.nullable else ' NOT NULL'}{self.extra}"

    @property
    def deterministic(self):
        """An expression that is the same for all values that compare equal."""
        if self.type.exact:
            return self.name
        return f"HEX(WEIGHT_STRING({self.name} AS CHAR(30)))"

    @property
    def total(self):
        """An expression that orders different values, always."""
        return self.name if self.type.exact and not self.type.long else f"HEX({self.name})"


class Key:
    """`parts`: (column, prefix or None, "" or " DESC")."""

    def __init__(self, name, kind, parts):
        self.name, self.kind, self.parts = name, kind, parts

    def columns(self):
        inside = ", ".join(f"{column}{f'({prefix})' if prefix else ''}{way}" for column, prefix, way in self.parts)
        return f"({inside})"

    def definition(self):
        return f"{self.kind} {'' if self.kind == 'PRIMARY KEY' else self.name} {self.columns()}"


def random_column(rng, name, earlier):
    kind = Type(rng)
    nullable = rng.random() < 0.65
    numbers = [c for c in earlier if c.type.family == "int" and not c.generated]
    texts = [c for c in earlier if c.type.family == "text" and not c.type.long and not c.generated]
    if rng.random() < 0.12 and (numbers or texts):
        how = rng.choice(["VIRTUAL", "STORED", "PERSISTENT"])
        if numbers and (not texts or rng.random() < 0.6):
            one = rng.choice(numbers)
            kind = Type.__new__(Type)
            kind.name, kind.family, kind.collation, kind.base, kind.pool = "BIGINT", "int", None, "BIGINT", ["0", "1", "3", "14"]
            return Column(name, kind, True, (rng.choice([f"{one.name} % 7", f"COALESCE({one.name}, 3) DIV 2", f"IF({one.name} > 5, 1, NULL)"]), how))
        one = rng.choice(texts)
        return Column(name, one.type, True, (rng.choice([f"{one.name}", f"LEFT({one.name}, 2)", f"LOWER({one.name})"]), how))
    extra = ""
    if rng.random() < 0.25:
        if kind.long or "(" in kind.pool[-1]:
            extra = ""
        else:
            extra = f" DEFAULT {rng.choice(kind.pool)}"
    return Column(name, kind, nullable, None, extra)


def random_key(rng, columns, name, primary=False):
    usable = [c for c in columns if not (primary and c.generated and c.generated[1] == "VIRTUAL")]
    if primary:
        usable = [c for c in usable if not c.type.long] or usable
    count = min(len(usable), rng.choice([1, 1, 1, 2, 2, 3]))
    parts = []
    for column in rng.sample(usable, count):
        prefix = None
        # InnoDB 10.11 loses the entries of an index on a virtual column's prefix.
        if column.type.long or (not column.generated and column.type.prefixable and rng.random() < 0.25):
            prefix = rng.choice([1, 2, 3, 5])
        parts.append((column.name, prefix, " DESC" if rng.random() < 0.2 else ""))
    if primary:
        return Key("PRIMARY", "PRIMARY KEY", parts)
    kind = "UNIQUE KEY" if rng.random() < 0.3 else "KEY"
    if kind == "UNIQUE KEY" and rng.long_unique and rng.random() < 0.1:
        # Without a prefix a long column gets a hidden hash.
        parts = [(column, None, "") for column, _, _ in parts]
    return Key(name, kind, parts)


class Table:
    def __init__(self, rng, name):
        self.rng, self.name = rng, name
        self.columns, self.next = [], 0
        self.temporary = rng.random() < 0.06
        shape = rng.random()
        self.auto = None
        if shape < 0.4:
            kind = Type.__new__(Type)
            kind.name, kind.family, kind.collation = rng.choice(["INT", "BIGINT UNSIGNED", "SMALLINT"]), "int", None
            kind.base, kind.pool = kind.name.split()[0], ["1", "2", "3", "10", "50"]
            auto = rng.random() < 0.5
            self.columns.append(Column(self.fresh(), kind, False, None, " AUTO_INCREMENT" if auto else ""))
            self.auto = self.columns[0].name if auto else None
        for _ in range(rng.randrange(2, 8)):
            self.columns.append(random_column(rng, self.fresh(), self.columns))
        self.keys = []
        if shape < 0.4:
            self.keys.append(Key("PRIMARY", "PRIMARY KEY", [(self.columns[0].name, None, " DESC" if rng.random() < 0.1 else "")]))
        elif shape < 0.75:
            self.keys.append(random_key(rng, self.columns, "", True))
        for _ in range(rng.randrange(0, 5)):
            self.keys.append(random_key(rng, self.columns, f"k{self.number()}"))
        # Rows that stay when they are changed; numbered by transaction, or by time.
        self.versioned = rng.choice(["transaction", "transaction", "time"]) if rng.random() < 0.1 and not self.temporary else None
        self.partitions = ""
        ints = [c.name for c in self.columns if c.type.family == "int"]
        if rng.random() < 0.07 and ints and not self.temporary:
            one = rng.choice(ints)
            self.partitions = rng.choice([f" PARTITION BY HASH ({one}) PARTITIONS 3", f" PARTITION BY RANGE ({one}) (PARTITION p0 VALUES LESS THAN (5), PARTITION p1 VALUES LESS THAN (60), PARTITION p2 VALUES LESS THAN MAXVALUE)"])

    def number(self):
        self.next += 1
        return self.next

    def fresh(self):
        return f"c{self.number()}"

    def create(self):
        items = [column.definition() for column in self.columns] + [key.definition() for key in self.keys]
        temporary = "TEMPORARY " if self.temporary else ""
        columns = ", vs BIGINT UNSIGNED AS ROW START INVISIBLE, ve BIGINT UNSIGNED AS ROW END INVISIBLE, PERIOD FOR SYSTEM_TIME (vs, ve)" if self.versioned == "transaction" else ""
        versioned = " WITH SYSTEM VERSIONING" if self.versioned else ""
        return of("create", f"CREATE {temporary}TABLE {self.name} (", Parts(items), f"{columns}) ENGINE=@E{versioned}{self.partitions}")

    def column(self, name):
        return next((c for c in self.columns if c.name == name), None)

    def plain(self):
        """Columns that a statement may set."""
        return [c for c in self.columns if not c.generated]

    def in_unique(self):
        """Columns of which a unique key (or partition) depends, through generated columns too."""
        names = {part[0] for key in self.keys if key.kind != "KEY" for part in key.parts}
        for column in self.columns:
            if column.generated and column.name in names:
                names |= {c.name for c in self.columns if c.name in column.generated[0]}
        return names

    def total_order(self):
        """A list for ORDER BY under which only rows that are equal in everything tie."""
        return ", ".join(c.total + self.rng.choice(["", "", " DESC"]) for c in self.columns)

    def key_names(self):
        return [key.name for key in self.keys]


__all__ = ["Column", "INTEGERS", "Key", "Table", "random_column", "random_key"]
