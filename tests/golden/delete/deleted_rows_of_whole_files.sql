-- ids: D16, D17, D23
-- modes: merge-on-read

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

DELETE FROM db.t WHERE id = 1;
--> snapshot: operation=delete, added-delete-files=1

-- The count of removed records is the file's own, deleted rows included; a version 3 deletion
-- vector goes with its file.
DELETE FROM db.t WHERE dep = 'hr';
--> result: mode=metadata, rows_deleted=1
--> snapshot: operation=delete, deleted-data-files=1, deleted-records=2
--> snapshot [v3]: removed-delete-files=1, removed-dvs=1
--> rows
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500

-- A file whose rows were all deleted one by one goes the same way.
DELETE FROM db.t WHERE id = 3;
DELETE FROM db.t WHERE id = 4;
--> rows
--| 5 | NULL | 500
DELETE FROM db.t WHERE dep = 'it';
--> result: mode=metadata
--> snapshot: operation=delete, deleted-data-files=1, deleted-records=2
--> rows
--| 5 | NULL | 500
