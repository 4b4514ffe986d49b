"""Foreign keys among the tables of a scenario, and which statements they make depend on the order of rows."""

import copy

from schema import Column, Key
from statement import of

ACTIONS = ["", "", "CASCADE", "CASCADE", "CASCADE", "SET NULL", "SET NULL", "RESTRICT", "NO ACTION"]


class Foreign:
    """The grammar's foreign keys. DDL statements are made while foreign_key_checks are on: without them InnoDB 10.11 loses keys whose index goes."""

    def begin_foreign(self):
        self.has_foreign = self.rng.random() < 0.5
        self.checks = True
        self.references = []  # [child, parent, constraint], by names

    def related(self, table):
        return any(table.name in one[:2] for one in self.references)

    def renamed(self, before, after):
        self.references = [[after if name == before else name for name in one[:2]] + one[2:] for one in self.references]

    def dropped(self, name):
        self.references = [one for one in self.references if one[0] != name]

    def checking(self, on):
        statement = of("setting", f"SET foreign_key_checks={int(on)}")
        statement.done = lambda: setattr(self, "checks", on)
        return statement

    def foreign(self, table):
        """Declares a key of the table, drops one, or switches the checks."""
        rng = self.rng
        if not self.checks or rng.random() < 0.25:
            return self.checking(not self.checks)
        own = [one for one in self.references if one[0] == table.name]
        if own and rng.random() < 0.2:
            gone = rng.choice(own)
            statement = of("alter", f"ALTER TABLE {table.name} DROP FOREIGN KEY {gone[2]}")
            statement.done = lambda: self.references.remove(gone)
            return statement
        return self.declared(table)

    def declared(self, table):
        rng = self.rng
        able = [t for t in self.tables.values() if not t.temporary and not t.partitions and not t.versioned]
        keys = [(parent, key) for parent in able for key in parent.keys if not any(prefix for _, prefix, _ in key.parts)]
        if table not in able or not keys:
            return None
        parent, key = rng.choice(keys)
        referenced = [parent.column(part[0]) for part in key.parts][: rng.choice([1, 1, len(key.parts)])]
        if any(column is None or column.type.long for column in referenced):
            return None
        after = copy.copy(table)
        after.columns, after.keys = list(table.columns), list(table.keys)
        columns, items = [], []
        for column in referenced:
            # A row that refers to itself by one column finds itself or not, as its entries come and go.
            taken = columns + [c.name for c in referenced] * (table is parent)
            same = [c for c in table.plain() if c.type.definition() == column.type.definition() and c.name not in taken and "AUTO" not in c.extra]
            if same and (table is not parent or rng.random() < 0.5):
                columns.append(rng.choice(same).name)
                continue
            made = Column(table.fresh(), column.type, rng.random() < 0.9)
            after.columns.append(made)
            columns.append(made.name)
            items.append(f"ADD COLUMN {made.definition()}")
        after.next = table.next
        # An index of a name of its own: the one that the server makes has the constraint's.
        after.keys.append(Key(f"k{after.number()}", "KEY", [(column, None, "") for column in columns]))
        table.next = after.next
        items.append(f"ADD {after.keys[-1].definition()}")
        name = f"f{table.number()}_{table.name}"
        actions = "".join(f" ON {event} {action}" for event in ("DELETE", "UPDATE") if (action := rng.choice(ACTIONS)))
        items.append(f"ADD CONSTRAINT {name} FOREIGN KEY ({', '.join(columns)}) REFERENCES {parent.name} ({', '.join(c.name for c in referenced)}){actions}")
        statement = of("alter", f"ALTER TABLE {table.name} {', '.join(items)}")

        def done():
            self.tables[table.name] = after
            self.references.append([table.name, parent.name, name])

        statement.done = done
        return statement
