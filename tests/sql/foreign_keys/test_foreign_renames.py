"""Foreign keys follow the names of their parents and of the columns that they refer to, and are added in place: as InnoDB's, statement by statement."""

import pymysql
import pytest
from both_engines import assert_same

from conftest import run

FAMILY = """
    CREATE TABLE p (id INT PRIMARY KEY, k INT, UNIQUE KEY (k)) ENGINE=@E;
    CREATE TABLE c (id INT PRIMARY KEY, p INT, k INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE, CONSTRAINT of_k FOREIGN KEY (k) REFERENCES p (k)) ENGINE=@E;
    CREATE TABLE d (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE) ENGINE=@E;
    INSERT INTO p VALUES (1, 10), (2, 20), (3, 30);
    INSERT INTO c VALUES (1, 1, 20), (2, 2, NULL);
    INSERT INTO d VALUES (1, 3)
"""
SHOWN = """;
    SHOW CREATE TABLE c;
    SHOW CREATE TABLE d;
    INSERT INTO c VALUES (9, 9, 9);
    SELECT * FROM c ORDER BY id;
    SELECT * FROM d ORDER BY id;
    SELECT CONSTRAINT_NAME, UNIQUE_CONSTRAINT_NAME, TABLE_NAME, REFERENCED_TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE() ORDER BY 1, 2;
    SELECT CONSTRAINT_NAME, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = DATABASE() ORDER BY 1, 2, 3
"""

SCRIPTS = {
    "a parent gets another name": FAMILY + """;
        RENAME TABLE p TO q
    """ + SHOWN + """;
        DELETE FROM q WHERE id = 1;
        DELETE FROM q WHERE id = 2;
        UPDATE q SET id = 33 WHERE id = 3;
        ALTER TABLE q RENAME TO r
    """ + SHOWN + """;
        DROP TABLE r;
        ALTER TABLE r RENAME TO s, ADD COLUMN x INT, ALGORITHM=INPLACE
    """ + SHOWN + """;
        CREATE TABLE p (id INT PRIMARY KEY) ENGINE=@E;
        DROP TABLE p;
        DROP TABLE c, d;
        DROP TABLE s
    """,
    "two tables exchange their names": FAMILY + """;
        CREATE TABLE other (id INT PRIMARY KEY, k INT, UNIQUE KEY (k)) ENGINE=@E;
        CREATE TABLE e (p INT, FOREIGN KEY (p) REFERENCES other (id)) ENGINE=@E;
        RENAME TABLE p TO t, other TO p, t TO other
    """ + SHOWN + """;
        SHOW CREATE TABLE e;
        INSERT INTO e VALUES (1);
        INSERT INTO p VALUES (1, 1);
        INSERT INTO e VALUES (1);
        DELETE FROM other WHERE id = 1;
        DELETE FROM p
    """,
    "parent and children move to another database": FAMILY + """;
        CREATE DATABASE @D_two;
        RENAME TABLE p TO @D_two.p
    """ + SHOWN + """;
        RENAME TABLE c TO @D_two.c2, d TO @D_two.d;
        SHOW CREATE TABLE @D_two.c2;
        SHOW CREATE TABLE @D_two.d;
        DELETE FROM @D_two.p WHERE id = 1;
        SELECT * FROM @D_two.c2;
        INSERT INTO @D_two.c2 VALUES (5, 5, 5);
        RENAME TABLE @D_two.p TO p
    """ + """;
        SHOW CREATE TABLE @D_two.d;
        DROP TABLE @D_two.c2, @D_two.d
    """,
    "a statement of renames that fails": FAMILY + """;
        RENAME TABLE p TO q, nothing TO more
    """ + SHOWN + """;
        RENAME TABLE c TO c2, p TO q, d TO c2
    """ + SHOWN,
    "a table that refers to itself gets another name": """
        CREATE TABLE s (a INT, b INT, KEY (b), FOREIGN KEY (a) REFERENCES s (b) ON DELETE SET NULL) ENGINE=@E;
        INSERT INTO s VALUES (NULL, 1), (1, 2);
        ALTER TABLE s RENAME TO t;
        SHOW CREATE TABLE t;
        INSERT INTO t VALUES (7, 3);
        DELETE FROM t WHERE b = 1;
        SELECT * FROM t;
        ALTER TABLE t RENAME COLUMN b TO c;
        SHOW CREATE TABLE t;
        INSERT INTO t VALUES (7, 3)
    """,
    "a name that foreign keys wait for": """
        SET foreign_key_checks = 0;
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES w (id) ON DELETE CASCADE) ENGINE=@E;
        SET foreign_key_checks = 1;
        CREATE TABLE q (id INT PRIMARY KEY) ENGINE=@E;
        CREATE TABLE r (id BIGINT PRIMARY KEY) ENGINE=@E;
        CREATE TABLE s (id INT) ENGINE=@E;
        RENAME TABLE r TO w;
        RENAME TABLE s TO w;
        SET foreign_key_checks = 0;
        RENAME TABLE r TO w;
        SET foreign_key_checks = 1;
        RENAME TABLE q TO w;
        INSERT INTO c VALUES (1, 1);
        INSERT INTO w VALUES (1);
        INSERT INTO c VALUES (1, 1);
        DELETE FROM w;
        SELECT * FROM c;
        CREATE TABLE q (id INT PRIMARY KEY) ENGINE=@E;
        SHOW TABLES
    """,
    "a column that others refer to gets another name": FAMILY + """;
        ALTER TABLE p RENAME COLUMN id TO ident
    """ + SHOWN + """;
        DELETE FROM p WHERE ident = 1;
        ALTER TABLE p CHANGE k key_ INT, RENAME COLUMN ident TO id2
    """ + SHOWN + """;
        UPDATE p SET id2 = 33 WHERE id2 = 3;
        ALTER TABLE p CHANGE id2 id3 INT, ALGORITHM=COPY;
        ALTER TABLE p RENAME COLUMN id2 TO id3, RENAME TO q, ALGORITHM=INPLACE
    """ + SHOWN,
    "foreign keys are added in place": """
        CREATE TABLE p (id INT PRIMARY KEY, k INT, v INT, KEY (k)) ENGINE=@E;
        CREATE TABLE c (id INT PRIMARY KEY, p INT, k INT, n INT NOT NULL) ENGINE=@E;
        INSERT INTO p VALUES (1, 10, 0), (2, 20, 0);
        INSERT INTO c VALUES (1, 1, 10, 1), (2, 9, 9, 2);
        SET foreign_key_checks = 0;
        ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE, ALGORITHM=INPLACE;
        ALTER TABLE c ADD CONSTRAINT of_k FOREIGN KEY (k) REFERENCES p (k), ADD COLUMN w INT, ALGORITHM=INPLACE;
        ALTER TABLE c ADD CONSTRAINT OF_K FOREIGN KEY (p) REFERENCES p (k), ALGORITHM=INPLACE;
        ALTER TABLE c ADD CONSTRAINT x FOREIGN KEY (p) REFERENCES p (v), ALGORITHM=INPLACE;
        ALTER TABLE c ADD CONSTRAINT x FOREIGN KEY (p) REFERENCES p (nothing), ALGORITHM=INPLACE;
        ALTER TABLE c ADD CONSTRAINT x FOREIGN KEY (n) REFERENCES p (id) ON DELETE SET NULL, ALGORITHM=INPLACE;
        ALTER TABLE c ADD CONSTRAINT late FOREIGN KEY (n) REFERENCES later (id), ALGORITHM=INPLACE;
        ALTER TABLE c DROP FOREIGN KEY late, ADD CONSTRAINT late2 FOREIGN KEY (n) REFERENCES p (id), ALGORITHM=INPLACE;
        SHOW CREATE TABLE c;
        SET foreign_key_checks = 1;
        ALTER TABLE c ADD CONSTRAINT y FOREIGN KEY (n) REFERENCES p (id), ALGORITHM=INPLACE;
        SELECT * FROM c ORDER BY id;
        INSERT INTO c VALUES (3, 9, NULL, 1, 1);
        UPDATE c SET w = 1;
        UPDATE c SET p = 8 WHERE id = 2;
        DELETE FROM p WHERE id = 1;
        ALTER TABLE c DROP FOREIGN KEY late2;
        DELETE FROM p WHERE id = 1;
        SELECT * FROM c ORDER BY id;
        SELECT CONSTRAINT_NAME, UNIQUE_CONSTRAINT_NAME, DELETE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE() ORDER BY 1
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_names_are_followed_as_in_innodb(server, engine, name):
    assert_same(server, engine, SCRIPTS[name])


def test_a_rename_with_a_copy_is_refused_where_innodb_loses_the_foreign_keys(db, engine):
    if engine != "Terrace":
        pytest.skip("InnoDB does something else")
    run(db, "CREATE TABLE p (id INT PRIMARY KEY) ENGINE=Terrace")
    run(db, "CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=Terrace")
    with pytest.raises(pymysql.err.MySQLError) as refused:
        run(db, "ALTER TABLE p RENAME TO q, ADD COLUMN x INT, ALGORITHM=COPY")
    assert refused.value.args[0] == 1178
    assert "REFERENCES `p` (`id`)" in run(db, "SHOW CREATE TABLE c")[0][1]
