"""More kinds of statements: windows, common table expressions, views, triggers, SET STATEMENT, prepared ones, history."""

from statement import of
from values import quoted

STATEMENT_SETTINGS = [
    "optimizer_switch='mrr=on,mrr_sort_keys=on,mrr_cost_based=off'", "optimizer_switch='index_merge=off'", "join_cache_level=8", "join_buffer_size=2048", "sort_buffer_size=1024",
    "tmp_memory_table_size=0", "optimizer_use_condition_selectivity=1", "max_length_for_sort_data=8", "eq_range_index_dive_limit=1", "big_tables=1", "sql_select_limit=DEFAULT",
]


class Wider:
    """The grammar's rarer statements on existing tables."""

    def wider(self, table):
        rng = self.rng
        pick = rng.random()
        if pick < 0.25:
            return self.window(table)
        if pick < 0.4:
            return self.common(table)
        if pick < 0.6:
            return self.view(table)
        if pick < 0.75:
            inner = self.select(table)
            setting = rng.choice(STATEMENT_SETTINGS)
            return of(inner.kind, f"SET STATEMENT {setting} FOR ", *inner.pieces, rows=inner.rows)
        if pick < 0.85:
            inner = self.select(table) if rng.random() < 0.5 else self.deleted(table)
            return of(inner.kind, "EXECUTE IMMEDIATE ", quoted(inner.text()), rows=inner.rows, counted=inner.counted)
        if pick < 0.9:
            return self.deleted(table)
        return self.trigger(table) if not table.versioned or rng.random() < 0.3 else self.history(table)

    def window(self, table):
        rng = self.rng
        over = f"ORDER BY {table.total_order()}"
        numbers = [c.name for c in table.columns if c.type.family == "int"]
        part = rng.choice(table.columns)
        by = f"PARTITION BY {part.name} " if part.type.exact and part.type.base != "BIT" and rng.random() < 0.6 else ""
        frame = rng.choice(["ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING", "ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING"])
        asked = [f"ROW_NUMBER() OVER ({by}{over})", f"COUNT(*) OVER ({by}{over} {frame})", f"NTILE(3) OVER ({by}{over})"]
        if numbers:
            one = rng.choice(numbers)
            asked += [f"SUM({one}) OVER ({by}{over} {frame})", f"LAG({one}, 2) OVER ({by}{over})", f"MAX({one}) OVER ({by}{over} {frame})", f"RANK() OVER ({by}ORDER BY {one})"]
        shown = [c.deterministic for c in table.columns]
        return of("select", f"SELECT {', '.join(shown)}, {', '.join(rng.sample(asked, rng.randrange(1, 3)))} FROM {table.name}", *self.where(table))

    def common(self, table):
        rng = self.rng
        if rng.random() < 0.3:
            numbers = [c.name for c in table.columns if c.type.family == "int"]
            if numbers:
                one = rng.choice(numbers)
                return of("select", f"WITH RECURSIVE r AS (SELECT 1 n UNION SELECT n + 1 FROM r WHERE n < 30) SELECT n, COUNT({one}) FROM r LEFT JOIN {table.name} ON {one} = n", *self.where(table, chance=0.4), " GROUP BY n")
        joined = self.pair(table)
        if not joined:
            return self.window(table)
        other, on = joined
        column = on.split(" = b.")[1]
        return of("select", f"WITH b AS (SELECT {column}, COUNT(*) n FROM {other.name}", *self.where(other), f" GROUP BY {column}) SELECT COUNT(*), SUM(n) FROM {table.name} a JOIN b ON {on}")

    def view(self, table):
        rng = self.rng
        if table.temporary:
            return self.select(table)
        name = f"v{rng.randrange(1, 3)}"
        if rng.random() < 0.4 or name not in self.views:
            columns = table.columns if rng.random() < 0.5 else rng.sample(table.columns, rng.randrange(1, len(table.columns) + 1))
            check = rng.choice(["", "", " WITH CHECK OPTION"])
            condition = f" WHERE {self.simple(table)}" if rng.random() < 0.7 else ""
            check = check if condition else ""
            algorithm = rng.choice(["", "ALGORITHM=TEMPTABLE ", "ALGORITHM=MERGE "]) if not check else ""
            statement = of("view", f"CREATE OR REPLACE {algorithm}VIEW {name} AS SELECT {', '.join(c.name for c in columns)} FROM {table.name}{condition}{check}")
            statement.done = lambda: self.views.__setitem__(name, (table, columns))
            return statement
        table, columns = self.views[name]
        column = rng.choice(columns)
        pick = rng.random()
        if pick < 0.5:
            return of("select", f"SELECT * FROM {name} WHERE {column.name} {rng.choice(['=', '<', '>='])} {column.type.value(rng)}")
        if self.related(table):
            return of("select", f"SELECT COUNT(*) FROM {name}")
        if pick < 0.7:
            return of("delete", f"DELETE FROM {name} WHERE {column.name} = {column.type.value(rng)}", counted=True)
        if column.generated or table.in_unique() & {column.name} or table.partitions:
            return of("select", f"SELECT COUNT(*) FROM {name}")
        return of("update", f"UPDATE {name} SET {column.name} = {column.type.value(rng)} WHERE {column.name} = {column.type.value(rng)}", counted=True)

    def deleted(self, table):
        """DELETE … RETURNING."""
        column = self.rng.choice(table.columns)
        return of("delete", f"DELETE FROM {table.name}", *self.where(table, chance=1), f" ORDER BY {table.total_order()} LIMIT 2 RETURNING {column.name}", rows="list", counted=True)

    def trigger(self, table):
        rng = self.rng
        if table.temporary:
            return self.select(table)
        if rng.random() < 0.4:
            return of("trigger", f"DROP TRIGGER IF EXISTS tr_{table.name}")
        column = rng.choice([c for c in table.plain() if "AUTO" not in c.extra] or table.plain())
        return of("trigger", f"CREATE OR REPLACE TRIGGER tr_{table.name} BEFORE {rng.choice(['INSERT', 'UPDATE'])} ON {table.name} FOR EACH ROW SET NEW.{column.name} = {rng.choice([column.type.value(rng), 'NEW.' + column.name])}")

    def history(self, table):
        """A table's history; transaction numbers differ between engines, so only whether they are set is compared."""
        rng = self.rng
        shown = [c.deterministic for c in table.columns]
        ended = {"transaction": ["vs > 1", "ve = 18446744073709551615", "vs < ve"], "time": ["row_start", "row_end"]}[table.versioned]
        pick = rng.random()
        if pick < 0.7:
            return of("history", f"SELECT {', '.join(shown + ended)} FROM {table.name} FOR SYSTEM_TIME ALL", *self.where(table, chance=0.3))
        if pick < 0.9 or table.versioned == "time":
            column = rng.choice(table.columns)
            return of("history", f"SELECT {column.deterministic}, COUNT(*) FROM {table.name} FOR SYSTEM_TIME ALL GROUP BY {column.name}")
        return of("history", f"DELETE HISTORY FROM {table.name}", counted=True)
