-- ids: U9, U12, U14
-- formats: 2, 3

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

-- Only the file with a match is rewritten, or has a row deleted.
UPDATE db.t SET dep = 'it' WHERE id = 1;
--> result: rows_updated=1, rows_matched=1
--> snapshot [copy-on-write]: operation=overwrite, deleted-data-files=1, added-data-files=2, changed-partition-count=2
--> snapshot [merge-on-read]: operation=overwrite, added-data-files=1, added-delete-files=1, deleted-data-files=absent, changed-partition-count=2
--> rows
--| 1 | it | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
--> rows: SELECT id FROM db.t WHERE dep = 'it'
--| 1
--| 3
--| 4
