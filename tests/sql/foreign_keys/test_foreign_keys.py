"""Foreign keys: each script runs on InnoDB and on the engine, statement by statement, and the answers are compared: rows, error numbers,
and the texts of errors that name a constraint."""

import pytest
from both_engines import assert_same

PAIR = """
    CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=@E;
    CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
    INSERT INTO p VALUES (1, 1), (2, 2), (3, 3), (4, 4);
    INSERT INTO c VALUES (1, 1, 0), (2, 2, 0), (3, NULL, 0)
"""

SCRIPTS = {
    "a child needs its parent": PAIR + """;
        INSERT INTO c VALUES (4, 9, 0);
        INSERT INTO c VALUES (4, 3, 0), (5, 9, 0);
        SELECT * FROM c ORDER BY id;
        INSERT IGNORE INTO c VALUES (4, 9, 0), (5, 4, 0);
        SHOW WARNINGS;
        UPDATE c SET p = 9 WHERE id = 1;
        UPDATE c SET p = 4 WHERE id = 1;
        UPDATE c SET v = 1;
        UPDATE IGNORE c SET p = p + 2;
        UPDATE c SET p = NULL WHERE id = 2;
        SELECT * FROM c ORDER BY id
    """,
    "a parent with children stays": PAIR + """;
        DELETE FROM p WHERE id = 1;
        DELETE FROM p WHERE id = 3;
        DELETE FROM p;
        SELECT * FROM p ORDER BY id;
        DELETE IGNORE FROM p;
        SHOW WARNINGS;
        SELECT * FROM p ORDER BY id;
        UPDATE p SET id = 7 WHERE id = 1;
        UPDATE p SET v = 7;
        UPDATE p SET id = id;
        UPDATE IGNORE p SET id = id + 10;
        SELECT * FROM p ORDER BY id;
        DELETE FROM c;
        DELETE FROM p;
        SELECT * FROM p
    """,
    "duplicates are reported before a missing parent": PAIR + """;
        INSERT INTO c VALUES (1, 9, 0);
        INSERT INTO c VALUES (1, 9, 0) ON DUPLICATE KEY UPDATE v = v + 1;
        INSERT INTO c VALUES (1, 2, 0) ON DUPLICATE KEY UPDATE p = 9;
        INSERT INTO c VALUES (6, 9, 0) ON DUPLICATE KEY UPDATE v = 5;
        REPLACE INTO c VALUES (1, 9, 0);
        REPLACE INTO c VALUES (1, 3, 0);
        REPLACE INTO c VALUES (6, 9, 0);
        REPLACE INTO p VALUES (1, 5);
        REPLACE INTO p VALUES (2, 5);
        INSERT INTO p VALUES (2, 5) ON DUPLICATE KEY UPDATE v = 8;
        INSERT INTO p VALUES (2, 5) ON DUPLICATE KEY UPDATE id = 8;
        SELECT * FROM p ORDER BY id;
        SELECT * FROM c ORDER BY id
    """,
    "the constraint's index is the primary key": """
        CREATE TABLE p (id INT PRIMARY KEY) ENGINE=@E;
        CREATE TABLE c (id INT PRIMARY KEY, v INT, FOREIGN KEY (id) REFERENCES p (id)) ENGINE=@E;
        INSERT INTO p VALUES (1), (2);
        INSERT INTO c VALUES (1, 1);
        INSERT INTO c VALUES (1, 1);
        INSERT INTO c VALUES (3, 1);
        UPDATE c SET id = 2;
        UPDATE c SET id = 3;
        DELETE FROM p WHERE id = 2;
        DELETE FROM p WHERE id = 1;
        SHOW CREATE TABLE c
    """,
    "statements of several tables": PAIR + """;
        DELETE p, c FROM p JOIN c ON p.id = c.p;
        SELECT * FROM p ORDER BY id;
        UPDATE p, c SET c.p = 3, p.v = 9 WHERE c.p = p.id;
        UPDATE p, c SET c.p = 33 WHERE c.p = p.id;
        SELECT * FROM c ORDER BY id;
        DELETE c FROM p JOIN c ON p.id = c.p;
        DELETE p FROM p LEFT JOIN c ON p.id = c.p WHERE c.p IS NULL;
        SELECT * FROM p ORDER BY id;
        SELECT * FROM c ORDER BY id
    """,
    "INSERT SELECT of many rows": PAIR + """;
        INSERT INTO p SELECT seq, seq FROM seq_10_to_5000;
        CREATE TABLE d (id INT PRIMARY KEY, p INT NOT NULL, CONSTRAINT of_p FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        INSERT INTO d SELECT seq, seq FROM seq_10_to_5001;
        SELECT COUNT(*) FROM d;
        INSERT INTO d SELECT seq, seq FROM seq_10_to_5000;
        SELECT COUNT(*), SUM(p) FROM d;
        INSERT INTO d SELECT seq, seq - 5000 FROM seq_6000_to_9000;
        SELECT COUNT(*), SUM(p) FROM d;
        DELETE FROM p WHERE id > 100;
        SELECT COUNT(*) FROM p;
        UPDATE d SET p = p + 1;
        UPDATE d SET p = 4;
        DELETE FROM p WHERE id > 100;
        SELECT COUNT(*) FROM p
    """,
    "CREATE SELECT": PAIR + """;
        CREATE TABLE d (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E SELECT seq AS id, seq AS p FROM seq_1_to_5;
        SHOW TABLES;
        CREATE TABLE d (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E SELECT seq AS id, seq AS p FROM seq_1_to_4;
        SELECT * FROM d ORDER BY id;
        CREATE TABLE e LIKE d;
        SHOW CREATE TABLE e;
        SHOW CREATE TABLE d
    """,
    "keys of several columns, NULLs among them": """
        CREATE TABLE p (a INT, b VARCHAR(10), c INT, PRIMARY KEY (a, b), KEY bc (b, c)) ENGINE=@E;
        CREATE TABLE c (id INT PRIMARY KEY, x INT, y VARCHAR(20), z INT, FOREIGN KEY (x, y) REFERENCES p (a, b), FOREIGN KEY (y, z) REFERENCES p (b, c)) ENGINE=@E;
        INSERT INTO p VALUES (1, 'one', 10), (2, 'two', NULL);
        INSERT INTO c VALUES (1, 1, 'one', 10);
        INSERT INTO c VALUES (2, 1, 'two', NULL);
        INSERT INTO c VALUES (3, 2, 'two', NULL);
        INSERT INTO c VALUES (4, NULL, 'none', NULL);
        INSERT INTO c VALUES (5, 2, 'TWO  ', NULL);
        INSERT INTO c VALUES (6, 2, 'two', 10);
        DELETE FROM p WHERE a = 2;
        UPDATE p SET c = 11 WHERE a = 1;
        UPDATE p SET c = 11 WHERE a = 2;
        UPDATE p SET b = 'ONE' WHERE a = 1;
        DELETE FROM c WHERE id IN (3, 5);
        DELETE FROM p WHERE a = 2;
        SELECT * FROM p ORDER BY a;
        SELECT * FROM c ORDER BY id;
        SHOW CREATE TABLE c
    """,
    "a key that isn't unique": """
        CREATE TABLE p (id INT PRIMARY KEY, k INT, KEY (k)) ENGINE=@E;
        CREATE TABLE c (id INT PRIMARY KEY, k INT, FOREIGN KEY (k) REFERENCES p (k)) ENGINE=@E;
        INSERT INTO p VALUES (1, 5), (2, 5), (3, 6);
        INSERT INTO c VALUES (1, 5);
        INSERT INTO c VALUES (2, 7);
        DELETE FROM p WHERE id = 1;
        DELETE FROM p WHERE id = 3;
        UPDATE p SET k = 6 WHERE id = 2;
        UPDATE p SET id = 9 WHERE id = 2;
        SELECT * FROM p ORDER BY id
    """,
    "tables without a primary key": """
        CREATE TABLE p (k INT, v INT, UNIQUE KEY (k)) ENGINE=@E;
        CREATE TABLE c (k INT, FOREIGN KEY (k) REFERENCES p (k)) ENGINE=@E;
        INSERT INTO p VALUES (1, 1), (2, 2), (NULL, 3), (NULL, 4);
        INSERT INTO c VALUES (1), (1), (NULL);
        INSERT INTO c VALUES (3);
        DELETE FROM p WHERE k = 1;
        DELETE FROM p WHERE k IS NULL;
        UPDATE p SET k = 3 WHERE k = 2;
        UPDATE p SET k = 4 WHERE k = 1;
        SELECT * FROM p ORDER BY v
    """,
    "a table that refers to itself": """
        CREATE TABLE t (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES t (id)) ENGINE=@E;
        INSERT INTO t VALUES (1, NULL), (2, 1), (3, 2);
        INSERT INTO t VALUES (4, 4);
        INSERT INTO t VALUES (6, 7), (7, 6);
        INSERT INTO t VALUES (5, 6);
        DELETE FROM t WHERE id = 4;
        SELECT * FROM t ORDER BY id;
        UPDATE t SET id = 44 WHERE id = 4;
        UPDATE t SET id = 44, up = 44 WHERE id = 4;
        SELECT * FROM t ORDER BY id;
        DELETE FROM t WHERE id = 1;
        DELETE FROM t WHERE id IN (1, 2, 3) ORDER BY id DESC;
        SELECT * FROM t ORDER BY id;
        INSERT INTO t SELECT seq, IF(seq % 2, NULL, seq - 1) FROM seq_1000_to_4000;
        SELECT COUNT(*), SUM(up) FROM t;
        INSERT INTO t SELECT seq, seq + 1 FROM seq_5000_to_7000;
        SELECT COUNT(*), SUM(up) FROM t;
        UPDATE t SET up = NULL;
        DELETE FROM t;
        SELECT COUNT(*) FROM t;
        TRUNCATE TABLE t;
        DROP TABLE t
    """,
    "a parent in another database": """
        CREATE DATABASE @D_two;
        CREATE TABLE @D_two.p (id INT PRIMARY KEY) ENGINE=@E;
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES @D_two.p (id)) ENGINE=@E;
        INSERT INTO c VALUES (1, 1);
        INSERT INTO @D_two.p VALUES (1);
        INSERT INTO c VALUES (1, 1);
        DELETE FROM @D_two.p;
        SHOW CREATE TABLE c;
        DROP DATABASE @D_two;
        DROP TABLE c;
        DROP DATABASE @D_two
    """,
    "foreign_key_checks off": PAIR + """;
        SET foreign_key_checks = 0;
        INSERT INTO c VALUES (9, 99, 0);
        DELETE FROM p WHERE id = 1;
        UPDATE c SET p = 98 WHERE id = 2;
        SET foreign_key_checks = 1;
        UPDATE c SET v = 5;
        UPDATE c SET p = 97 WHERE id = 9;
        INSERT INTO p VALUES (99, 0);
        DELETE FROM p WHERE id = 99;
        SELECT * FROM c ORDER BY id;
        SET foreign_key_checks = 0;
        DROP TABLE p;
        SET foreign_key_checks = 1;
        INSERT INTO c VALUES (10, 2, 0);
        INSERT INTO c VALUES (10, NULL, 0);
        SHOW CREATE TABLE c;
        CREATE TABLE p (id BIGINT PRIMARY KEY) ENGINE=@E;
        CREATE TABLE p (id INT) ENGINE=@E;
        CREATE TABLE p (id INT PRIMARY KEY) ENGINE=@E;
        INSERT INTO c VALUES (11, 2, 0);
        INSERT INTO p VALUES (2);
        INSERT INTO c VALUES (11, 2, 0);
        DELETE FROM p
    """,
    "tables are declared in any order with foreign_key_checks off": """
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        SET foreign_key_checks = 0;
        CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        INSERT INTO c VALUES (1, 1), (2, 2);
        CREATE TABLE p (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (id)) ENGINE=@E;
        INSERT INTO p VALUES (1, 1);
        SET foreign_key_checks = 1;
        INSERT INTO c VALUES (3, 1);
        INSERT INTO c VALUES (4, 2);
        DELETE FROM p;
        DELETE FROM c WHERE id = 2;
        DROP TABLE p;
        DROP TABLE c;
        ALTER TABLE p DROP FOREIGN KEY p_ibfk_1;
        DROP TABLE c;
        DROP TABLE p
    """,
    "definitions that are wrong": """
        CREATE TABLE p (id INT PRIMARY KEY, u INT UNSIGNED, k INT, t VARCHAR(10) CHARACTER SET latin1, KEY (u), KEY (t), KEY pre (t(3))) ENGINE=@E;
        CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES nothing (id)) ENGINE=@E;
        CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (nothing)) ENGINE=@E;
        CREATE TABLE c (p INT, FOREIGN KEY (q) REFERENCES p (id)) ENGINE=@E;
        CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (k)) ENGINE=@E;
        CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES p (u)) ENGINE=@E;
        CREATE TABLE c (p BIGINT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        CREATE TABLE c (p VARCHAR(10) CHARACTER SET utf8mb4, FOREIGN KEY (p) REFERENCES p (t)) ENGINE=@E;
        CREATE TABLE c (p VARCHAR(5) CHARACTER SET latin1, FOREIGN KEY (p) REFERENCES p (t)) ENGINE=@E;
        CREATE TABLE d (p INT, FOREIGN KEY (p) REFERENCES p (id, u)) ENGINE=@E;
        CREATE TABLE d (p INT, CONSTRAINT x FOREIGN KEY (p) REFERENCES p (id), CONSTRAINT X FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        CREATE TABLE d (p INT, CONSTRAINT x FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        CREATE TABLE e (p INT, CONSTRAINT x FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        CREATE TEMPORARY TABLE f (p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E;
        CREATE TABLE g (p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=@E PARTITION BY HASH (p);
        CREATE TABLE pp (id INT PRIMARY KEY) ENGINE=@E PARTITION BY HASH (id);
        CREATE TABLE g (p INT, FOREIGN KEY (p) REFERENCES pp (id)) ENGINE=@E;
        SHOW TABLES
    """,
    "names and options as they are shown": """
        CREATE TABLE p (id INT PRIMARY KEY, k INT, KEY named (k)) ENGINE=@E;
        CREATE TABLE `c d` (id INT PRIMARY KEY, a INT REFERENCES p (id), b INT, c INT, CONSTRAINT `of p` FOREIGN KEY (b) REFERENCES p (id) ON DELETE RESTRICT ON UPDATE NO ACTION,
            FOREIGN KEY ix (c) REFERENCES p (k) ON DELETE NO ACTION) ENGINE=@E;
        SHOW CREATE TABLE `c d`;
        ALTER TABLE `c d` ADD FOREIGN KEY (id) REFERENCES p (id);
        SHOW CREATE TABLE `c d`;
        SELECT CONSTRAINT_NAME, TABLE_NAME, COLUMN_NAME, ORDINAL_POSITION, POSITION_IN_UNIQUE_CONSTRAINT, REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME
            FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = DATABASE() ORDER BY 1, 2, 3, 4;
        SELECT CONSTRAINT_NAME, UNIQUE_CONSTRAINT_NAME, MATCH_OPTION, UPDATE_RULE, DELETE_RULE, TABLE_NAME, REFERENCED_TABLE_NAME
            FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = DATABASE() ORDER BY 1, 2;
        SELECT CONSTRAINT_NAME, TABLE_NAME, CONSTRAINT_TYPE FROM information_schema.TABLE_CONSTRAINTS WHERE TABLE_SCHEMA = DATABASE() ORDER BY 1, 2, 3
    """,
    "ALTER adds a foreign key": """
        CREATE TABLE p (id INT PRIMARY KEY) ENGINE=@E;
        CREATE TABLE c (id INT PRIMARY KEY, p INT) ENGINE=@E;
        INSERT INTO p SELECT seq FROM seq_1_to_100;
        INSERT INTO c SELECT seq, seq FROM seq_1_to_101;
        ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p (id), ALGORITHM=INPLACE;
        ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES q (id);
        DELETE FROM c WHERE id = 101;
        ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p (id);
        SHOW CREATE TABLE c;
        DELETE FROM p WHERE id = 50;
        INSERT INTO c VALUES (200, 200);
        ALTER TABLE c ADD CONSTRAINT c_ibfk_1 FOREIGN KEY (p) REFERENCES p (id);
        ALTER TABLE c DROP FOREIGN KEY nothing;
        ALTER TABLE c DROP FOREIGN KEY c_ibfk_1;
        SHOW CREATE TABLE c;
        INSERT INTO c VALUES (200, 200);
        SET foreign_key_checks = 0;
        ALTER TABLE c ADD CONSTRAINT late FOREIGN KEY (p) REFERENCES p (id), ALGORITHM=COPY;
        SET foreign_key_checks = 1;
        SELECT COUNT(*) FROM c;
        INSERT INTO c VALUES (201, 201);
        UPDATE c SET p = 5 WHERE id = 200;
        ALTER TABLE c DROP CONSTRAINT late, DROP KEY p;
        SHOW CREATE TABLE c;
        DROP TABLE p
    """,
    "ALTER of a child": PAIR + """;
        ALTER TABLE c DROP KEY p;
        ALTER TABLE c DROP COLUMN p;
        ALTER TABLE c MODIFY p BIGINT;
        ALTER TABLE c ADD KEY more (p, v), DROP KEY p;
        SHOW CREATE TABLE c;
        ALTER TABLE c ADD COLUMN w INT, ALGORITHM=COPY;
        ALTER TABLE c ADD COLUMN w2 INT, ALGORITHM=INPLACE;
        ALTER TABLE c FORCE;
        ALTER TABLE c MODIFY p INT NOT NULL DEFAULT 1, ALGORITHM=COPY;
        UPDATE c SET p = 3 WHERE p IS NULL;
        INSERT INTO c (id, p) VALUES (7, 77);
        DELETE FROM p WHERE id = 1;
        ALTER TABLE c RENAME COLUMN p TO parent;
        SHOW CREATE TABLE c;
        INSERT INTO c (id, parent) VALUES (7, 77);
        RENAME TABLE c TO kids;
        SHOW CREATE TABLE kids;
        INSERT INTO kids (id, parent) VALUES (7, 77);
        DELETE FROM p WHERE id = 1;
        ALTER TABLE kids ENGINE=MyISAM;
        ALTER TABLE kids PARTITION BY HASH (id);
        TRUNCATE TABLE kids;
        DELETE FROM p WHERE id = 1;
        SELECT COUNT(*) FROM p
    """,
    "ALTER of a parent": PAIR + """;
        ALTER TABLE p DROP COLUMN id;
        ALTER TABLE p MODIFY id BIGINT;
        ALTER TABLE p ADD COLUMN w INT, ALGORITHM=COPY;
        INSERT INTO c VALUES (7, 77, 0);
        DELETE FROM p WHERE id = 1;
        ALTER TABLE p ADD COLUMN w2 INT, ALGORITHM=INPLACE;
        ALTER TABLE p FORCE;
        INSERT INTO c VALUES (7, 77, 0);
        INSERT INTO c VALUES (7, 4, 0);
        DELETE FROM p WHERE id = 1;
        TRUNCATE TABLE p;
        DROP TABLE p;
        ALTER TABLE p ENGINE=MyISAM;
        CREATE OR REPLACE TABLE p (id INT PRIMARY KEY) ENGINE=@E;
        SHOW TABLES;
        DROP TABLE p, c;
        SHOW TABLES;
        DROP TABLE p
    """,
    "DROP DATABASE": """
        CREATE DATABASE @D_two;
        CREATE TABLE @D_two.p (id INT PRIMARY KEY) ENGINE=@E;
        CREATE TABLE @D_two.c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES @D_two.p (id)) ENGINE=@E;
        DROP DATABASE @D_two
    """,
    "EXCHANGE PARTITION": PAIR + """;
        CREATE TABLE parts (id INT PRIMARY KEY, v INT) ENGINE=@E PARTITION BY HASH (id) PARTITIONS 2;
        ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE p;
        CREATE TABLE parts2 (id INT PRIMARY KEY, p INT, v INT, KEY p (p)) ENGINE=@E PARTITION BY HASH (id) PARTITIONS 2;
        ALTER TABLE parts2 EXCHANGE PARTITION p0 WITH TABLE c;
        SELECT * FROM c ORDER BY id
    """,
    "triggers and routines": PAIR + """;
        CREATE TRIGGER t BEFORE INSERT ON c FOR EACH ROW SET NEW.p = NEW.p + 1;
        INSERT INTO c VALUES (8, 3, 0);
        INSERT INTO c VALUES (9, 4, 0);
        CREATE TRIGGER s AFTER DELETE ON c FOR EACH ROW DELETE FROM p WHERE id = OLD.p;
        DELETE FROM c WHERE id = 8;
        SELECT * FROM p ORDER BY id;
        SELECT * FROM c ORDER BY id
    """,
    "statements and savepoints that are undone": PAIR + """;
        BEGIN;
        INSERT INTO c VALUES (20, 4, 0);
        SAVEPOINT s;
        DELETE FROM c WHERE id = 20;
        DELETE FROM p WHERE id = 4;
        INSERT INTO c VALUES (21, 4, 0);
        ROLLBACK TO s;
        DELETE FROM p WHERE id = 4;
        INSERT INTO c VALUES (22, 4, 0), (23, 99, 0);
        COMMIT;
        SELECT * FROM p ORDER BY id;
        SELECT * FROM c ORDER BY id
    """,
    "texts, dates and numbers": """
        CREATE TABLE p (t VARCHAR(30) COLLATE utf8mb4_general_ci PRIMARY KEY, d DATE, n DECIMAL(10,2), e ENUM('a','b'), b BINARY(4), f CHAR(10) COLLATE utf8mb4_bin, u BIGINT UNSIGNED,
            KEY (d), KEY (n), KEY (e), KEY (b), KEY (f), KEY (u)) ENGINE=@E;
        CREATE TABLE c (id INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(100) COLLATE utf8mb4_general_ci, d DATE, n DECIMAL(10,2), e ENUM('a','b'), b BINARY(4), f VARCHAR(10) COLLATE utf8mb4_bin, u BIGINT UNSIGNED,
            FOREIGN KEY (t) REFERENCES p (t), FOREIGN KEY (d) REFERENCES p (d), FOREIGN KEY (n) REFERENCES p (n), FOREIGN KEY (e) REFERENCES p (e),
            FOREIGN KEY (b) REFERENCES p (b), FOREIGN KEY (f) REFERENCES p (f), FOREIGN KEY (u) REFERENCES p (u)) ENGINE=@E;
        INSERT INTO p VALUES ('Straße', '2026-01-01', -1.50, 'b', 'ab', 'x', 18446744073709551615);
        INSERT INTO c (t) VALUES ('STRASSE');
        INSERT INTO c (t) VALUES ('straße');
        INSERT INTO c (t) VALUES ('STRAßE  ');
        INSERT INTO c (d) VALUES ('2026-01-01');
        INSERT INTO c (d) VALUES ('2026-01-02');
        INSERT INTO c (n) VALUES (-1.5);
        INSERT INTO c (n) VALUES (1.5);
        INSERT INTO c (e) VALUES ('b');
        INSERT INTO c (e) VALUES ('a');
        INSERT INTO c (b) VALUES ('ab');
        INSERT INTO c (b) VALUES ('abc');
        INSERT INTO c (f) VALUES ('x');
        INSERT INTO c (f) VALUES ('x ');
        INSERT INTO c (f) VALUES ('X');
        INSERT INTO c (u) VALUES (18446744073709551615);
        INSERT INTO c (u) VALUES (1);
        UPDATE p SET d = '2026-02-02';
        UPDATE p SET f = 'y';
        UPDATE p SET t = 'straße';
        UPDATE p SET t = 'weg';
        SELECT * FROM c ORDER BY id
    """,
    "names with other characters": """
        CREATE TABLE `pä #1` (`id ö` INT PRIMARY KEY) ENGINE=@E;
        CREATE TABLE `c-2` (`x-y` INT, CONSTRAINT `n ü` FOREIGN KEY (`x-y`) REFERENCES `pä #1` (`ID ö`), FOREIGN KEY (`x-y`) REFERENCES `pä #1` (`id ö`)) ENGINE=@E;
        INSERT INTO `c-2` VALUES (1);
        INSERT INTO `pä #1` VALUES (1);
        INSERT INTO `c-2` VALUES (1);
        DELETE FROM `pä #1`;
        SHOW CREATE TABLE `c-2`;
        RENAME TABLE `c-2` TO `c.3`;
        SHOW CREATE TABLE `c.3`;
        DROP TABLE `pä #1`;
        ALTER TABLE `c.3` DROP FOREIGN KEY `N Ü`, DROP FOREIGN KEY `c.3_ibfk_1`;
        DROP TABLE `pä #1`
    """,
    "DESC indexes": """
        CREATE TABLE p (a INT, b INT, PRIMARY KEY (a DESC, b)) ENGINE=@E;
        CREATE TABLE c (id INT PRIMARY KEY, a INT, b INT, KEY (a, b DESC), FOREIGN KEY (a, b) REFERENCES p (a, b)) ENGINE=@E;
        INSERT INTO p VALUES (1, 1), (1, 2), (2, 1);
        INSERT INTO c VALUES (1, 1, 1), (2, 2, 1);
        INSERT INTO c VALUES (3, 2, 2);
        DELETE FROM p WHERE a = 1 AND b = 2;
        DELETE FROM p WHERE a = 1 AND b = 1
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_answers_are_innodbs(server, engine, name):
    assert_same(server, engine, SCRIPTS[name])
