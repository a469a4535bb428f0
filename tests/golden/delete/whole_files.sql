-- ids: D7, D9, D20
-- formats: 2, 3

CREATE TABLE db.t (id INT, s STRUCT<a: INT, b: STRUCT<c: INT>>);
INSERT INTO db.t VALUES (1, named_struct('a', 1, 'b', named_struct('c', 1)));
INSERT INTO db.t VALUES (2, named_struct('a', 2, 'b', named_struct('c', 2)));
INSERT INTO db.t VALUES (3, named_struct('a', 3, 'b', named_struct('c', 3)));
INSERT INTO db.t VALUES (4, named_struct('a', 4, 'b', named_struct('c', 10)));

-- No partition is selected in an unpartitioned table: the metrics of each file decide.
DELETE FROM db.t WHERE id <= 1;
--> result: mode=metadata, rows_deleted=1
--> snapshot: operation=delete, deleted-data-files=1

DELETE FROM db.t WHERE t.s.a = 2;
--> result: rows_deleted=1
--> snapshot: operation=delete

-- A condition that metrics cannot decide.
DELETE FROM db.t WHERE s.b.c = id + 6;
--> result: rows_deleted=1
--> rows
--| 3 | {a: 3, b: {c: 3}}
