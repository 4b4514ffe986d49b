-- Moves all InnoDB tables of the schemas to Terrace, with the foreign keys among them. Printed by `terrace convert`; may be run again after an error, a kill or a crash.
-- 1. Refuses what could not be finished. 2. Records and drops the foreign keys, as InnoDB keeps tables that have them. 3. Moves the tables. 4. Adds the foreign keys
-- again: in place, as InnoDB has enforced them, and then looks for rows without a parent, which other sessions may have left meanwhile.
CREATE TABLE IF NOT EXISTS `terrace_convert_keys` (
  `schema_name` VARCHAR(64) NOT NULL, `table_name` VARCHAR(64) NOT NULL, `key_name` VARCHAR(64) NOT NULL,
  `definition` LONGTEXT NOT NULL, `orphans` LONGTEXT NOT NULL, `parts` TEXT NOT NULL, `index_name` VARCHAR(64) NOT NULL DEFAULT '',
  PRIMARY KEY (`schema_name`, `table_name`, `key_name`)) ENGINE=Terrace CHARACTER SET utf8mb4;
DELIMITER //
CREATE OR REPLACE FUNCTION `terrace_convert_name`(part VARCHAR(64) CHARACTER SET utf8mb3) RETURNS VARCHAR(200) CHARACTER SET utf8mb3 DETERMINISTIC
  RETURN CONCAT('`', REPLACE(part, '`', '``'), '`')//
CREATE OR REPLACE PROCEDURE `terrace_convert_step`(todo LONGTEXT CHARACTER SET utf8mb3)
BEGIN
  SELECT todo AS step;
  PREPARE step FROM todo;
  EXECUTE step;
  DEALLOCATE PREPARE step;
END//
CREATE OR REPLACE PROCEDURE `terrace_convert`(of_schemas TEXT CHARACTER SET utf8mb3)
BEGIN
  DECLARE reason TEXT CHARACTER SET utf8mb3;
  DECLARE todo, look LONGTEXT CHARACTER SET utf8mb3;
  DECLARE of_schema, of_table, of_key, of_index VARCHAR(64) CHARACTER SET utf8mb3;
  SET SESSION group_concat_max_len = 1000000;

  SELECT MIN(CONCAT(TABLE_SCHEMA, '.', TABLE_NAME, ' has a full-text or spatial index, which Terrace does not have')) INTO reason
    FROM information_schema.STATISTICS JOIN information_schema.TABLES USING (TABLE_SCHEMA, TABLE_NAME)
    WHERE FIND_IN_SET(TABLE_SCHEMA, of_schemas) AND INDEX_TYPE IN ('FULLTEXT', 'SPATIAL') AND ENGINE = 'InnoDB';
  IF reason IS NULL THEN
    SELECT MIN(CONCAT('foreign key ', k.CONSTRAINT_NAME, ' of ', k.TABLE_SCHEMA, '.', k.TABLE_NAME, ' refers to ', k.REFERENCED_TABLE_SCHEMA, '.',
        k.REFERENCED_TABLE_NAME, ': name both schemas')) INTO reason
      FROM information_schema.KEY_COLUMN_USAGE AS k
      WHERE k.REFERENCED_TABLE_NAME IS NOT NULL
        AND (FIND_IN_SET(k.TABLE_SCHEMA, of_schemas) > 0) <> (FIND_IN_SET(k.REFERENCED_TABLE_SCHEMA, of_schemas) > 0);
  END IF;
  IF reason IS NULL THEN
    SELECT MIN(CONCAT(TABLE_SCHEMA, '.', TABLE_NAME, ' is system-versioned, and the server moves no such table to another engine')) INTO reason
      FROM information_schema.TABLES WHERE FIND_IN_SET(TABLE_SCHEMA, of_schemas) AND TABLE_TYPE = 'SYSTEM VERSIONED' AND ENGINE = 'InnoDB';
  END IF;
  IF reason IS NOT NULL THEN
    SET reason = LEFT(CONCAT('nothing was changed: ', reason), 512);
    SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = reason;
  END IF;

  -- A foreign key stays in the list until it is there again.
  INSERT IGNORE INTO `terrace_convert_keys` (schema_name, table_name, key_name, definition, orphans, parts)
    SELECT k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME,
      CONCAT('ALTER TABLE ', terrace_convert_name(k.TABLE_SCHEMA), '.', terrace_convert_name(k.TABLE_NAME), ' ADD CONSTRAINT ', terrace_convert_name(k.CONSTRAINT_NAME),
        ' FOREIGN KEY (', GROUP_CONCAT(terrace_convert_name(k.COLUMN_NAME) ORDER BY k.ORDINAL_POSITION SEPARATOR ', '), ') REFERENCES ',
        terrace_convert_name(k.REFERENCED_TABLE_SCHEMA), '.', terrace_convert_name(k.REFERENCED_TABLE_NAME), ' (',
        GROUP_CONCAT(terrace_convert_name(k.REFERENCED_COLUMN_NAME) ORDER BY k.ORDINAL_POSITION SEPARATOR ', '), ') ON DELETE ', MIN(r.DELETE_RULE),
        ' ON UPDATE ', MIN(r.UPDATE_RULE)),
      CONCAT('SELECT COUNT(*) INTO @terrace_convert_orphans FROM ', terrace_convert_name(k.TABLE_SCHEMA), '.', terrace_convert_name(k.TABLE_NAME), ' AS child WHERE ',
        GROUP_CONCAT(CONCAT('child.', terrace_convert_name(k.COLUMN_NAME), ' IS NOT NULL') SEPARATOR ' AND '), ' AND NOT EXISTS (SELECT 1 FROM ',
        terrace_convert_name(k.REFERENCED_TABLE_SCHEMA), '.', terrace_convert_name(k.REFERENCED_TABLE_NAME), ' AS parent WHERE ',
        GROUP_CONCAT(CONCAT('parent.', terrace_convert_name(k.REFERENCED_COLUMN_NAME), ' = child.', terrace_convert_name(k.COLUMN_NAME)) SEPARATOR ' AND '), ')'),
      GROUP_CONCAT(k.COLUMN_NAME ORDER BY k.ORDINAL_POSITION)
    FROM information_schema.KEY_COLUMN_USAGE AS k
      JOIN information_schema.REFERENTIAL_CONSTRAINTS AS r
        ON (r.CONSTRAINT_SCHEMA, r.TABLE_NAME, r.CONSTRAINT_NAME) = (k.CONSTRAINT_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME)
    WHERE FIND_IN_SET(k.TABLE_SCHEMA, of_schemas) AND k.REFERENCED_TABLE_NAME IS NOT NULL
      AND EXISTS (SELECT 1 FROM information_schema.TABLES AS t WHERE t.ENGINE = 'InnoDB'
        AND ((t.TABLE_SCHEMA, t.TABLE_NAME) = (k.TABLE_SCHEMA, k.TABLE_NAME)
          OR (t.TABLE_SCHEMA, t.TABLE_NAME) = (k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME)))
    GROUP BY k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME;

  -- An index that the server made for a foreign key is created again with it, under another name.
  UPDATE `terrace_convert_keys` AS c
    JOIN (SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) AS parts
      FROM information_schema.STATISTICS WHERE FIND_IN_SET(TABLE_SCHEMA, of_schemas) GROUP BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME) AS i
      ON (i.TABLE_SCHEMA, i.TABLE_NAME, i.parts) = (c.schema_name, c.table_name, c.parts)
    SET c.index_name = i.INDEX_NAME WHERE c.index_name = '';

  drops: LOOP
    SET todo = NULL;
    SELECT CONCAT('ALTER TABLE ', terrace_convert_name(c.schema_name), '.', terrace_convert_name(c.table_name), ' DROP FOREIGN KEY ', terrace_convert_name(c.key_name)) INTO todo
      FROM `terrace_convert_keys` AS c
        JOIN information_schema.REFERENTIAL_CONSTRAINTS AS r
          ON (r.CONSTRAINT_SCHEMA, r.TABLE_NAME, r.CONSTRAINT_NAME) = (c.schema_name, c.table_name, c.key_name)
        JOIN information_schema.TABLES AS t ON (t.TABLE_SCHEMA, t.TABLE_NAME) = (c.schema_name, c.table_name)
      WHERE t.ENGINE = 'InnoDB' OR EXISTS (SELECT 1 FROM information_schema.TABLES AS p WHERE p.ENGINE = 'InnoDB'
        AND (p.TABLE_SCHEMA, p.TABLE_NAME) = (r.UNIQUE_CONSTRAINT_SCHEMA, r.REFERENCED_TABLE_NAME))
      LIMIT 1;
    IF todo IS NULL THEN LEAVE drops; END IF;
    CALL `terrace_convert_step`(todo);
  END LOOP;

  tables: LOOP
    SET todo = NULL;
    SELECT CONCAT('ALTER TABLE ', terrace_convert_name(TABLE_SCHEMA), '.', terrace_convert_name(TABLE_NAME), ' ENGINE=Terrace') INTO todo
      FROM information_schema.TABLES
      WHERE FIND_IN_SET(TABLE_SCHEMA, of_schemas) AND ENGINE = 'InnoDB' AND TABLE_TYPE = 'BASE TABLE'
      ORDER BY TABLE_SCHEMA, TABLE_NAME LIMIT 1;
    IF todo IS NULL THEN LEAVE tables; END IF;
    CALL `terrace_convert_step`(todo);
  END LOOP;

  adds: LOOP
    SET todo = NULL;
    SELECT definition, orphans, schema_name, table_name, key_name, index_name INTO todo, look, of_schema, of_table, of_key, of_index FROM `terrace_convert_keys` LIMIT 1;
    IF todo IS NULL THEN LEAVE adds; END IF;
    IF NOT EXISTS (SELECT 1 FROM information_schema.REFERENTIAL_CONSTRAINTS
        WHERE (CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME) = (of_schema, of_table, of_key)) THEN
      SET SESSION foreign_key_checks = 0;
      CALL `terrace_convert_step`(todo);
      SET SESSION foreign_key_checks = 1;
    END IF;
    IF of_index NOT IN ('', 'PRIMARY') AND (SELECT COUNT(DISTINCT INDEX_NAME) + SUM(INDEX_NAME = of_index) * 2 FROM information_schema.STATISTICS
        WHERE (TABLE_SCHEMA, TABLE_NAME) = (of_schema, of_table) AND INDEX_NAME IN (of_key, of_index)) = 1 THEN
      SET todo = CONCAT('ALTER TABLE ', terrace_convert_name(of_schema), '.', terrace_convert_name(of_table), ' RENAME KEY ', terrace_convert_name(of_key), ' TO ', terrace_convert_name(of_index));
      CALL `terrace_convert_step`(todo);
    END IF;
    CALL `terrace_convert_step`(look);
    IF @terrace_convert_orphans > 0 THEN
      SET reason = LEFT(CONCAT(@terrace_convert_orphans, ' rows of ', of_schema, '.', of_table, ' have no parent by foreign key ', of_key,
        ', which is enforced from now on: delete or mend them, and run this again'), 512);
      SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = reason;
    END IF;
    DELETE FROM `terrace_convert_keys` WHERE (schema_name, table_name, key_name) = (of_schema, of_table, of_key);
  END LOOP;
END//
DELIMITER ;
CALL `terrace_convert`(@terrace_convert_schemas);
DROP PROCEDURE `terrace_convert`;
DROP PROCEDURE `terrace_convert_step`;
DROP FUNCTION `terrace_convert_name`;
DROP TABLE `terrace_convert_keys`;
SELECT 'all tables are moved, all foreign keys are there' AS result;
