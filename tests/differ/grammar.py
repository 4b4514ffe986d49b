"""Random statements over the tables of one scenario. Each is made so that its outcome does not depend on the plan that runs it."""

import copy

from foreign import Foreign
from schema import Table, random_column, random_key
from statement import Parts, of
from values import Type, quoted
from wider import Wider

SETTINGS = [
    "SET optimizer_switch='mrr=on,mrr_sort_keys=on,mrr_cost_based=off'", "SET optimizer_switch='mrr=off'",
    "SET optimizer_switch='index_merge=off'", "SET optimizer_switch='index_merge_sort_intersection=on'", "SET optimizer_switch='default'",
    "SET optimizer_switch='rowid_filter=off'", "SET optimizer_switch='join_cache_bka=on,mrr=on,mrr_sort_keys=on', join_cache_level=8, join_buffer_size=2048", "SET optimizer_switch='index_condition_pushdown=off'", "SET optimizer_switch='materialization=off'",
    "SET optimizer_switch='semijoin=off'", "SET optimizer_switch='firstmatch=off,loosescan=on'", "SET optimizer_switch='split_materialized=off'",
    "SET join_cache_level=0", "SET join_cache_level=2", "SET join_cache_level=6", "SET join_cache_level=8", "SET max_length_for_sort_data=8", "SET max_length_for_sort_data=default",
    "SET tmp_memory_table_size=1024", "SET tmp_memory_table_size=default", "SET use_stat_tables='preferably'", "SET optimizer_use_condition_selectivity=1",
    "SET unique_checks=0", "SET unique_checks=1", "SET eq_range_index_dive_limit=1", "SET eq_range_index_dive_limit=0",
]


class Grammar(Foreign, Wider):
    def __init__(self, rng):
        self.rng = rng
        self.tables = {}
        self.next_table = 0
        self.in_transaction = False
        self.handler = None
        self.writing = False
        self.numbers = 300
        self.views = {}  # name to the table and the columns it is of
        self.handler_ways = {}  # key to where its last read may go on
        self.begin_foreign()

    # What a scenario starts with.

    def opening(self):
        rng = self.rng
        yield of("setting", f"SET sql_mode='{rng.choice(['STRICT_TRANS_TABLES', 'STRICT_TRANS_TABLES', ''])}'")
        level = rng.choice(["READ COMMITTED", "REPEATABLE READ", "REPEATABLE READ", "SERIALIZABLE"])
        yield of("setting", f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        yield of("setting", "SET system_versioning_alter_history=KEEP")
        # At READ COMMITTED InnoDB 10.11 overlooks duplicates in the hidden hash of a long unique key.
        rng.long_unique = level != "READ COMMITTED"
        for _ in range(rng.randrange(1, 4)):
            yield self.create()
        for _ in range(rng.randrange(1, 5) if self.has_foreign else 0):
            if self.tables and (statement := self.declared(rng.choice(list(self.tables.values())))):
                yield statement
        if self.has_foreign and rng.random() < 0.4:
            yield self.checking(False)
        for table in list(self.tables.values()):
            for _ in range(rng.randrange(1, 4)):
                if table.name in self.tables:
                    yield self.insert(table)

    def create(self):
        self.next_table += 1
        table = Table(self.rng, f"t{self.next_table}")
        statement = table.create()
        statement.done = lambda: self.tables.__setitem__(table.name, table)
        return statement

    def forget_temporary(self):
        self.tables = {name: table for name, table in self.tables.items() if not table.temporary}

    def statement(self):
        rng = self.rng
        if not self.tables:
            return self.create()
        table = rng.choice(list(self.tables.values()))
        if self.has_foreign and rng.random() < 0.08 and (statement := self.foreign(table)):
            return statement
        pick = rng.random()
        if pick < 0.43:
            self.writing = True
            try:
                if pick < 0.2:
                    return self.insert(table)
                if pick < 0.32:
                    return self.update(table)
                return self.delete(table) if pick < 0.39 else self.multi(table)
            finally:
                self.writing = False
        if pick < 0.55:
            return self.control()
        if pick < 0.62:
            return self.alter(table) if self.checks else self.checking(True)
        if pick < 0.65:
            # Without both kinds of checks InnoDB loads an empty table in bulk, and then a duplicate is an error of the commit (1180).
            return of("setting", rng.choice([one for one in SETTINGS if not self.has_foreign or "unique_checks" not in one]))
        if pick < 0.69:
            return self.handler_read(table)
        if pick < 0.70:
            return of("analyze", f"ANALYZE TABLE {table.name}{rng.choice(['', ' PERSISTENT FOR ALL'])}", rows="bag")
        if pick < 0.76:
            return self.select(table)
        if pick < 0.8:
            return self.wider(table)
        if pick < 0.82:
            return self.pushed(table)
        if pick < 0.9:
            return self.join(table)
        return self.grouped(table)

    # Conditions.

    def condition(self, table, alias="", depth=0):
        rng = self.rng
        if depth < 2 and rng.random() < 0.15:
            return "(" + " OR ".join(self.condition(table, alias, depth + 1) for _ in range(rng.randrange(2, 4))) + ")"
        column = rng.choice(table.columns)
        if rng.random() < 0.5 and table.keys:  # a key's first column
            column = table.column(rng.choice(table.keys).parts[0][0]) or column
        name, value = alias + column.name, lambda: column.type.value(rng)
        pick = rng.random()
        if pick < 0.35:
            return f"{name} = {value()}"
        if pick < 0.6:
            return f"{name} {rng.choice(['<', '<=', '>', '>=', '<>', '<=>'])} {value()}"
        if pick < 0.7:
            return f"{name} BETWEEN {value()} AND {value()}"
        if pick < 0.8:
            return f"{name} {rng.choice(['', '', 'NOT '])}IN ({', '.join(value() for _ in range(rng.randrange(1, 6)))})"
        if pick < 0.88:
            return f"{name} IS {rng.choice(['', 'NOT '])}NULL"
        if pick < 0.93 and column.type.family == "text":
            return f"{name} LIKE '{rng.choice(['a%', 'A%', 'ab%', '%b', 'z_', 'k%', '%', '', 'a %', 'aB'])}'"
        if pick < 0.97 and not self.writing:  # what a write's subquery sees of its own table depends on the plan
            other = self.comparable(column)
            if other:
                inner, theirs = other
                if rng.random() < 0.5:
                    return f"{name} {rng.choice(['IN', 'NOT IN'])} (SELECT {theirs.name} FROM {inner.name} WHERE {self.simple(inner)})"
                return f"EXISTS (SELECT 1 FROM {inner.name} x WHERE x.{theirs.name} = {alias or table.name + '.'}{column.name} AND {self.simple(inner, 'x.')})"
        return f"NOT ({name} = {value()})"

    def simple(self, table, alias=""):
        column = self.rng.choice(table.columns)
        return f"{alias}{column.name} {self.rng.choice(['=', '<', '>='])} {column.type.value(self.rng)}"

    def comparable(self, column):
        """A table and a column in it of the same family; of one collation, or the server refuses."""
        found = [(t, c) for t in self.tables.values() for c in t.columns if c.type.family == column.type.family and c.type.collation == column.type.collation]
        return self.rng.choice(found) if found else None

    def where(self, table, alias="", chance=0.9):
        if self.rng.random() > chance:
            return []
        return [" WHERE ", Parts([self.condition(table, alias) for _ in range(self.rng.choice([1, 1, 2, 2, 3]))], " AND ")]

    def hint(self, table):
        if not table.keys or self.rng.random() < 0.4:
            return ""
        return f" {self.rng.choice(['FORCE', 'FORCE', 'USE', 'IGNORE'])} INDEX ({self.rng.choice(table.key_names())})"

    # Writes.

    def row(self, columns):
        rng = self.rng
        values = []
        for column in columns:
            pick = rng.random()
            if pick < 0.1:
                values.append("DEFAULT")
            elif pick < (0.25 if column.nullable else 0.12):
                values.append("NULL")
            else:
                values.append(column.type.value(rng))
        return f"({', '.join(values)})"

    def insert(self, table):
        rng = self.rng
        columns = table.plain()
        if rng.random() < 0.2 and len(columns) > 1:
            columns = rng.sample(columns, rng.randrange(1, len(columns)))
        names = ", ".join(c.name for c in columns)
        verb = rng.choice(["INSERT", "INSERT", "INSERT", "INSERT IGNORE", "INSERT IGNORE", "REPLACE"])
        tail = []
        if verb != "REPLACE" and rng.random() < 0.25:
            tail = [" ON DUPLICATE KEY UPDATE ", Parts([self.assignment(c, True) for c in rng.sample(columns, rng.randrange(1, min(3, len(columns)) + 1))])]
        if rng.random() < 0.3:
            source = self.source(table, columns)
            return of("insert", f"{verb} INTO {table.name} ({names}) ", *source, *tail, counted=True, warned=True)
        rows = Parts([self.row(columns) for _ in range(rng.choice([1, 2, 5, 12, 30]))])
        if rng.random() < 0.05 and verb != "REPLACE" and not tail:
            return of("insert", f"{verb} INTO {table.name} ({names}) VALUES ", rows, f" RETURNING {rng.choice(table.columns).name}", rows="list", counted=True)
        return of("insert", f"{verb} INTO {table.name} ({names}) VALUES ", rows, *tail, counted=True, warned=True)

    def source(self, table, columns):
        """A query whose rows come in one order only."""
        rng = self.rng
        if rng.random() < 0.6:
            rows = rng.choice([10, 40, 150, 400]) if rng.random() < 0.95 else 3000
            if any("0000)" in value for c in columns for value in c.type.pool):
                rows = 10  # of a load of more than a megabyte the first duplicate in the key's order is named, not in that of rows
            return [f"SELECT {', '.join(c.type.expression(rng) for c in columns)} FROM seq_1_to_{rows} ORDER BY seq"]
        other = rng.choice(list(self.tables.values()))
        chosen = []
        for column in columns:
            same = [c.name for c in other.columns if c.type.family == column.type.family]
            chosen.append(rng.choice(same) if same and rng.random() < 0.8 else column.type.value(rng))
        return [f"SELECT {', '.join(chosen)} FROM {other.name}", *self.where(other), f" ORDER BY {other.total_order()} LIMIT {rng.choice([3, 20, 60])}"]

    def assignment(self, column, inserting=False):
        rng = self.rng
        pick = rng.random()
        if inserting and pick < 0.3:
            return f"{column.name} = VALUES({column.name})"
        if column.type.family == "int" and pick < 0.6:
            # InnoDB 10.11 loses its counter (1467) where a number that it gave becomes 0.
            steps = ["+ 1", "+ 10", "+ 100"] + ([] if "AUTO" in column.extra else ["- 1"])
            return f"{column.name} = {column.name} {rng.choice(steps)}"
        if column.type.family == "text" and pick < 0.5:
            return f"{column.name} = {rng.choice(['UPPER({})', 'LOWER({})', 'LEFT({}, 1)', 'REVERSE({})']).format(column.name)}"
        if pick > 0.9 and column.nullable:
            return f"{column.name} = NULL"
        if pick > 0.87:
            return f"{column.name} = DEFAULT"
        return f"{column.name} = {column.type.value(rng)}"

    def safe(self, table, alias=""):
        """Assignments that meet no error, whatever the order of rows is, and don't read what they set."""
        unique = table.in_unique()
        guarded = unique | ({c.name for c in table.columns if table.partitions and c.name in table.partitions})
        free = [c for c in table.plain() if c.name not in guarded and c.nullable]
        if not free:
            return None
        return [f"{alias}{c.name} = {self.rng.choice([c.type.value(self.rng), c.type.value(self.rng), 'NULL'])}" for c in self.rng.sample(free, min(len(free), self.rng.randrange(1, 3)))]

    def update(self, table):
        rng = self.rng
        if rng.random() < 0.4 and not self.related(table):
            assignments = self.safe(table)
            if assignments:
                return of("update", f"UPDATE {table.name} SET ", Parts(assignments), *self.where(table), counted=True)
        columns = rng.sample(table.plain(), rng.randrange(1, min(4, len(table.plain())) + 1))
        assignments = Parts([self.assignment(column) for column in columns])
        limit = f" LIMIT {rng.choice([1, 3, 10])}" if rng.random() < 0.5 else ""
        ignore = rng.choice(["", "", "IGNORE "])
        return of("update", f"UPDATE {ignore}{table.name} SET ", assignments, *self.where(table), f" ORDER BY {table.total_order()}{limit}", counted=True)

    def delete(self, table):
        rng = self.rng
        # What a cascade does that comes back to the table depends on the order of rows.
        if rng.random() < 0.05 and not self.related(table):
            return of("delete", rng.choice([f"DELETE FROM {table.name}", f"TRUNCATE {table.name}"]))
        if rng.random() < 0.5 and not self.related(table):
            return of("delete", f"DELETE FROM {table.name}", *self.where(table, chance=1), counted=True)
        return of("delete", f"DELETE FROM {table.name}", *self.where(table, chance=1), f" ORDER BY {table.total_order()} LIMIT {rng.choice([1, 3, 10])}", counted=True)

    def pair(self, table):
        """Another table and the equality that joins it."""
        candidates = [c for c in table.columns if not c.type.long]
        column = self.rng.choice(candidates or table.columns)
        found = self.comparable(column)
        if not found:
            return None
        return found[0], f"a.{column.name} = b.{found[1].name}"

    def multi(self, table):
        rng = self.rng
        joined = self.pair(table)
        if not joined:
            return self.update(table)
        other, on = joined
        if self.related(table) or self.related(other):
            return self.delete(table)
        if rng.random() < 0.5:
            return of("delete", f"DELETE {rng.choice(['a', 'a', 'a, b'])} FROM {table.name} a JOIN {other.name} b ON {on}", *self.where(table, "a."), counted=True)
        assignments = self.safe(table, "a.")
        if not assignments:
            return self.delete(table)
        return of("update", f"UPDATE {table.name} a JOIN {other.name} b ON {on} SET ", Parts(assignments), *self.where(other, "b."), counted=True)

    # Transactions.

    def control(self):
        rng = self.rng
        if not self.in_transaction:
            statement = of("transaction", rng.choice(["BEGIN", "BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT", "SET autocommit=0", "XA START 'x'"]))
            if "XA" in statement.text():
                statement = of("transaction", "BEGIN")
            statement.done = lambda: setattr(self, "in_transaction", True)
            return statement
        if rng.random() < 0.6:
            return of("transaction", rng.choice(["SAVEPOINT s1", "SAVEPOINT s2", "SAVEPOINT s3", "ROLLBACK TO s1", "ROLLBACK TO s2", "RELEASE SAVEPOINT s1", "ROLLBACK TO s3"]))
        statement = of("transaction", rng.choice(["COMMIT", "ROLLBACK", "ROLLBACK", "SET autocommit=1", "ROLLBACK AND CHAIN"]))
        statement.done = lambda: setattr(self, "in_transaction", False)
        return statement

    # Reads.

    def lock(self):
        return self.rng.choice(["", "", "", "", " FOR UPDATE", " LOCK IN SHARE MODE", " FOR UPDATE SKIP LOCKED"])

    def chosen(self, table, alias=""):
        columns = self.rng.sample(table.columns, self.rng.randrange(1, len(table.columns) + 1))
        if self.rng.random() < 0.4 and table.keys:  # what one key covers
            columns = [table.column(part[0]) for part in self.rng.choice(table.keys).parts]
            columns = [c for c in columns if c] or table.columns
        return columns

    def select(self, table):
        rng = self.rng
        pick = rng.random()
        start = f" FROM {table.name}{self.hint(table)}"
        if pick < 0.35:
            columns = self.chosen(table)
            return of("select", f"SELECT {', '.join(c.name for c in columns)}", start, *self.where(table), self.lock())
        if pick < 0.6:
            # By a key's columns, so that an index can give the order.
            key = rng.choice(table.keys) if table.keys else None
            columns = [c for c in (table.column(part[0]) for part in key.parts) if c] if key else []
            columns = columns or [rng.choice(table.columns)]
            columns = columns[:rng.randrange(1, len(columns) + 1)]
            ways = [rng.choice(["", " DESC"]) for _ in columns] if rng.random() < 0.3 else [rng.choice(["", " DESC"])] * len(columns)
            order = ", ".join(c.name + way for c, way in zip(columns, ways))
            limit = f" LIMIT {rng.choice([1, 5, 20])}" if rng.random() < 0.4 else ""
            more = [] if limit else [c.name for c in self.chosen(table)]
            return of("select", f"SELECT {', '.join([c.deterministic for c in columns] + more)}", start, *self.where(table), f" ORDER BY {order}{limit}{self.lock()}", rows="list" if limit else len(columns))
        if pick < 0.75:
            return of("select", "SELECT *", start, *self.where(table), f" ORDER BY {table.total_order()} LIMIT {rng.choice([1, 5, 20])}{rng.choice(['', ' OFFSET 3'])}", rows="list")
        if pick < 0.85:
            column = rng.choice(table.columns)
            return of("select", f"SELECT DISTINCT {column.deterministic}", start, *self.where(table))
        if pick < 0.95:
            column = rng.choice(table.columns)
            if column.type.exact and column.type.base != "BIT":
                return of("select", f"SELECT COUNT(*), COUNT(DISTINCT {column.name}), MIN({column.name}), MAX({column.name})", start, *self.where(table))
            return of("select", f"SELECT COUNT(*), COUNT({column.name}), COUNT(DISTINCT {column.name})", start, *self.where(table))
        word = rng.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
        column = rng.choice(table.columns)
        return of("select", f"SELECT {column.deterministic} x FROM {table.name}", *self.where(table), f" {word} SELECT {column.deterministic} FROM {table.name}", *self.where(table))

    def pushed(self, table):
        """A range of an index with conditions on its other columns, which the engine judges before it reads a row; alone, or met by another table's rows."""
        rng = self.rng
        keys = [key for key in table.keys if len(key.parts) > 1]
        if not keys:
            return self.join(table)
        key = rng.choice(keys)
        columns = [c for c in (table.column(part[0]) for part in key.parts) if c]
        if len(columns) < 2:
            return self.join(table)

        def on(column, alias=""):
            value = lambda: column.type.value(rng)  # noqa: E731
            like = [f"LIKE '%{rng.choice('abkxz')}%'"] if column.type.family == "text" else []
            return f"{alias}{column.name} " + rng.choice(like + [f"<> {value()}", f">= {value()}", f"BETWEEN {value()} AND {value()}", f"IN ({value()}, {value()}, {value()})", "IS NOT NULL"])

        name = "PRIMARY" if key.kind == "PRIMARY KEY" else key.name
        force = f"{table.name} b FORCE INDEX ({name})"
        later = Parts([on(column, "b.") for column in columns[1:]], " AND ")
        joined = self.comparable(columns[0]) if rng.random() < 0.4 else None
        if joined:
            other, theirs = joined
            return of("select", f"SELECT a.{theirs.name}, b.* FROM {other.name} a STRAIGHT_JOIN {force} ON b.{columns[0].name} = a.{theirs.name} WHERE ", later)
        return of("select", f"SELECT * FROM {force} WHERE {on(columns[0], 'b.')} AND ", later, self.lock())

    def join(self, table):
        rng = self.rng
        joined = self.pair(table)
        if not joined:
            return self.select(table)
        other, on = joined
        how = rng.choice(["JOIN", "JOIN", "LEFT JOIN", "STRAIGHT_JOIN", "RIGHT JOIN"])
        conditions = Parts([self.condition(table, "a.") for _ in range(rng.randrange(1, 3))] + ([self.condition(other, "b.")] if rng.random() < 0.5 else []), " AND ")
        if rng.random() < 0.6:
            wanted = "COUNT(*)" + "".join(f", SUM(a.{c.name})" for c in table.columns if c.type.family == "int")[:400]
            return of("select", f"SELECT {wanted} FROM {table.name} a {how} {other.name} b ON {on} WHERE ", conditions)
        wanted = ", ".join([f"a.{c.name}" for c in table.columns[:3] if not c.type.long] + [f"b.{c.name}" for c in other.columns[:3] if not c.type.long]) or "1"
        return of("select", f"SELECT {wanted} FROM {table.name} a {how} {other.name} b ON {on} WHERE ", conditions)

    def grouped(self, table):
        rng = self.rng
        columns = []
        if table.keys and rng.random() < 0.7:
            columns = [c for c in (table.column(part[0]) for part in rng.choice(table.keys).parts) if c]
        columns = columns or [rng.choice(table.columns)]
        columns = columns[:rng.randrange(1, len(columns) + 1)]
        other = rng.choice(table.columns)
        # MIN of a BIT is a number or a string, as the plan has it.
        amount = f"MIN({other.name}), MAX({other.name})" if other.type.exact and other.type.base != "BIT" else f"COUNT({other.name})"
        having = f" HAVING COUNT(*) > {rng.choice([0, 1, 3])}" if rng.random() < 0.3 else ""
        return of("select", f"SELECT {', '.join(c.deterministic for c in columns)}, COUNT(*), {amount} FROM {table.name}{self.hint(table)}", *self.where(table), f" GROUP BY {', '.join(c.name for c in columns)}{having}")

    def handler_read(self, table):
        """HANDLER reads the engine directly, without a plan."""
        rng = self.rng
        if self.handler is None or self.handler not in self.tables:
            if table.temporary or table.versioned == "transaction":  # it shows the numbers of transactions, too
                return self.select(table)
            statement = of("handler", f"HANDLER {table.name} OPEN")
            statement.done = lambda: setattr(self, "handler", table.name)
            return statement
        table = self.tables[self.handler]
        if rng.random() < 0.15 or not table.keys:
            statement = of("handler", f"HANDLER {table.name} CLOSE")
            statement.done = lambda: setattr(self, "handler", None)
            return statement
        key = rng.choice(table.keys)
        limit = f" LIMIT {rng.choice([1, 3, 10])}"
        rows = "list" if table.keys[0].kind == "PRIMARY KEY" else None
        if rng.random() < 0.5:
            # Where a read goes on that turned round or found nothing is each engine's own.
            way = rng.choice(["FIRST", "LAST"] + [self.handler_ways.get(key.name, "FIRST")] * 2)
            self.handler_ways = {key.name: "NEXT" if way in ("FIRST", "NEXT") else "PREV"}
            return of("handler", f"HANDLER {table.name} READ `{key.name}` {way}{limit}", rows=rows)
        self.handler_ways = {}
        values = []
        for column, _, _ in key.parts[:rng.randrange(1, len(key.parts) + 1)]:
            one = table.column(column)
            values.append(one.type.value(rng) if one else "1")
        return of("handler", f"HANDLER {table.name} READ `{key.name}` {rng.choice(['=', '<=', '>=', '<', '>'])} ({', '.join(values)}){limit}", rows=rows)

    # Definitions.

    def grown(self, table):
        """A column that takes all that one of the table's has: a longer text, another collation, more members. None: there is none."""
        rng = self.rng
        # In place InnoDB puts a unique key that it rebuilds behind the others.
        unique = {part[0] for key in table.keys if key.kind != "KEY" for part in key.parts}
        keyed = {part[0] for key in table.keys for part in key.parts}
        able = [column for column in table.plain() if column.name not in unique and (column.type.family == "text" or column.type.base in ("ENUM", "SET"))]
        if not able:
            return None
        column = copy.copy(rng.choice(able))
        column.type = column.type.grown(rng, column.name in keyed)
        return column

    def alter(self, table):
        rng = self.rng
        if table.temporary:
            # InnoDB 10.11 loses rows of a temporary table that was altered when a statement is rolled back.
            return self.create()
        after = copy.copy(table)
        after.columns, after.keys = list(table.columns), list(table.keys)
        pick = rng.random()
        if pick < 0.3:
            key = random_key(rng, table.columns, f"k{table.number()}")
            after.next = table.next
            after.keys.append(key)
            # In place InnoDB puts a new unique key behind the others, and then checks it after them.
            copied = "" if key.kind == "KEY" else ", ALGORITHM=COPY"
            text = f"ALTER TABLE {table.name} ADD {key.definition()}{copied}"
        elif pick < 0.42 and table.keys:
            key = rng.choice(table.keys)
            after.keys.remove(key)
            text = f"ALTER TABLE {table.name} DROP " + ("PRIMARY KEY" if key.kind == "PRIMARY KEY" else f"KEY {key.name}")
        elif pick < 0.55:
            column = random_column(rng, table.fresh(), table.columns)
            after.next = table.next
            after.columns.append(column)
            text = f"ALTER TABLE {table.name} ADD COLUMN {column.definition()}"
        elif pick < 0.62 and len(table.columns) > 2:
            column = rng.choice(table.columns)
            after.columns.remove(column)
            after.keys = [key for key in table.keys if all(part[0] != column.name for part in key.parts)]
            text = f"ALTER TABLE {table.name} DROP COLUMN {column.name}"
        elif pick < 0.69 and (grown := self.grown(table)):
            after.columns = [grown if c.name == grown.name else c for c in table.columns]
            text = f"ALTER TABLE {table.name} MODIFY {grown.definition()}"
        elif pick < 0.75:
            column = copy.copy(rng.choice(table.plain()))
            column.type, column.extra = Type(rng), ""
            in_unique = {part[0] for key in table.keys if key.kind == "UNIQUE KEY" for part in key.parts}
            while column.type.long and column.name in in_unique and not rng.long_unique:
                column.type = Type(rng)
            column.nullable = rng.random() < 0.8
            after.columns = [column if c.name == column.name else c for c in table.columns]
            # In place InnoDB puts the column's default where a NULL is not allowed any more, by copy the server puts 0.
            text = f"ALTER TABLE {table.name} MODIFY {column.definition()}, ALGORITHM=COPY"
        elif pick < 0.8 and not [k for k in table.keys if k.kind == "PRIMARY KEY"]:
            key = random_key(rng, table.columns, "", True)
            after.keys.insert(0, key)
            text = f"ALTER TABLE {table.name} ADD {key.definition()}, ALGORITHM=COPY"
        elif pick < 0.85:
            text = f"ALTER TABLE {table.name} {rng.choice(['FORCE', 'ENGINE=@E', 'COMMENT=' + quoted('c'), 'ROW_FORMAT=DYNAMIC'])}"
        elif pick < 0.9:
            self.next_table += 1
            after.name = f"t{self.next_table}"
            text = rng.choice([f"RENAME TABLE {table.name} TO {after.name}", f"ALTER TABLE {table.name} RENAME {after.name}"])
        elif pick < 0.95:
            self.next_table += 1
            after.name, after.temporary = f"t{self.next_table}", False
            statement = of("create", f"CREATE TABLE {after.name} LIKE {table.name}")
            statement.done = lambda: self.tables.__setitem__(after.name, after)
            return statement
        elif len(self.tables) > 1:
            statement = of("drop", f"DROP TABLE {table.name}")
            statement.done = lambda: (self.tables.pop(table.name), self.dropped(table.name))
            return statement
        else:
            text = f"CHECK TABLE {table.name}"
            return of("check", text, rows="bag")

        if table.auto and text.startswith("ALTER"):
            # What a counter is that an ALTER took along, each engine decides.
            self.numbers += 300
            text += f", AUTO_INCREMENT={self.numbers}"

        def done():
            self.tables.pop(table.name)
            self.tables[after.name] = after
            self.renamed(table.name, after.name)

        statement = of("alter", text)
        statement.done = done
        return statement
