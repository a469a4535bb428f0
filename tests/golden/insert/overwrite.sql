-- ids: I4
-- partitioned by: dep
-- formats: 1, 2, 3
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

INSERT OVERWRITE db.t VALUES (6, 'ops', 600);
--> result: rows_inserted=1
--> snapshot: operation=overwrite, deleted-records=5, added-records=1
--> rows
--| 6 | ops | 600

-- No row: what was there goes all the same.
INSERT OVERWRITE db.t SELECT * FROM db.t WHERE id > 100;
--> snapshot: operation=delete, deleted-records=1
--> rows
