-- ids: I6
-- formats: 2, 3
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

INSERT INTO db.t REPLACE WHERE dep = 'hr' SELECT 10, 'hr', 1000;
--> snapshot: operation=overwrite, deleted-records=2, added-records=1
--> rows
--| 10 | hr | 1000
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500

-- A file of which only some rows match cannot be replaced.
INSERT INTO db.t REPLACE WHERE id = 3 SELECT 10, 'hr', 1000;
--> error ValidationFailedError validation-failed: some, but not all
