"""Runs the same statements on InnoDB and on the engine, and compares the answers: rows, error numbers, and the texts of errors that name a constraint."""

import random
import re

import pymysql

from conftest import run

TEXTS = (1451, 1452, 1216, 1217, 1296, 1761, 1762)


def shown(what, name, engine):
    return re.sub(r"#sql-alter-[0-9a-f-]+", "#sql-alter", str(what).replace(name, "@D").replace(engine, "@E"))


def answers(server, engine, script):
    name = f"fk{random.randrange(10**12)}"
    connection = server.connect(database="mysql")
    got = []
    try:
        run(connection, f"CREATE DATABASE {name}")
        run(connection, f"USE {name}")
        for statement in re.split(r"(?<!@);", script):      # @; is a semicolon within a statement
            statement = " ".join(statement.split()).replace("@E", engine).replace("@D", name).replace("@;", ";")
            if not statement:
                continue
            plain = statement.replace(name, "@D").replace(engine, "@E")
            try:
                rows = run(connection, statement)
                got.append((plain, shown(rows, name, engine)))
            except pymysql.err.MySQLError as error:
                code, text = error.args[0], shown(error.args[1], name, engine)
                got.append((plain, code, text if code in TEXTS else ""))
        return got
    finally:
        run(connection, "SET foreign_key_checks = 0")
        for each in (name, name + "_two"):
            run(connection, f"DROP DATABASE IF EXISTS {each}")
        connection.close()


def assert_same(server, engine, script):
    theirs, ours = answers(server, "InnoDB", script), answers(server, engine, script)
    differ = [(here, there[1:]) for here, there in zip(theirs, ours) if here != there]
    assert not differ, "\n".join(f"{here[0]}\n   InnoDB: {here[1:]}\n   {engine}: {there}" for here, there in differ)
