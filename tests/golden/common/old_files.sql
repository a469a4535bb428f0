-- ids: C35, C21
-- formats: 2, 3

CREATE TABLE db.t (id INT, f FLOAT, gone INT, part INT) PARTITIONED BY (part);
INSERT INTO db.t VALUES (1, 1.5, 0, 1), (2, 2.5, 0, 1);
ALTER TABLE db.t ALTER COLUMN id TYPE BIGINT;
ALTER TABLE db.t ALTER COLUMN f TYPE DOUBLE;
ALTER TABLE db.t DROP COLUMN gone;
ALTER TABLE db.t ADD COLUMN note STRING;
ALTER TABLE db.t RENAME COLUMN part TO p;
INSERT INTO db.t VALUES (9000000000, 3.5, 2, 'new');

-- Files of the first schema are read, matched and rewritten as rows of the current one.
UPDATE db.t SET note = concat('n', id), f = f + 1 WHERE id = 1 OR p = 2;
--> rows
--| 1 | 2.5 | 1 | n1
--| 2 | 2.5 | 1 | NULL
--| 9000000000 | 4.5 | 2 | n9000000000

-- So are files of an earlier partitioning.
ALTER TABLE db.t DROP PARTITION FIELD p;
INSERT INTO db.t VALUES (4, 4.5, 1, NULL);

DELETE FROM db.t WHERE id IN (2, 4);
--> result: rows_deleted=2
--> rows
--| 1 | 2.5 | 1 | n1
--| 9000000000 | 4.5 | 2 | n9000000000
