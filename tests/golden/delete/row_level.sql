-- ids: D11, D12, D13, D14, D22, D23
-- formats: 2, 3

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

-- LIKE with a leading % is not pushed down; the other files are not rewritten.
DELETE FROM db.t WHERE dep LIKE '%t' AND salary > 0;
--> result: rows_deleted=1, rows_matched=1
--> snapshot [copy-on-write]: operation=overwrite, added-data-files=1, deleted-data-files=1, deleted-records=2
--> snapshot [merge-on-read]: operation=delete, added-delete-files=1, deleted-data-files=absent, added-data-files=absent
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 4 | it | NULL
--| 5 | NULL | 500

-- All rows of a file go: copy-on-write removes it and writes nothing, merge-on-read leaves it in its place.
DELETE FROM db.t WHERE dep LIKE '%r';
--> result: rows_deleted=2
--> snapshot [copy-on-write]: operation=delete, added-data-files=absent, deleted-data-files=1
--> snapshot [merge-on-read]: operation=delete, added-delete-files=1, deleted-data-files=absent
--> rows [copy-on-write]: SELECT count(DISTINCT partition) FROM db.t.data_files
--| 2
--> rows [merge-on-read]: SELECT count(DISTINCT partition) FROM db.t.data_files
--| 3
--> rows: SELECT count(*) FROM db.t
--| 2

-- A delete of a whole partition takes it out of the table.
DELETE FROM db.t WHERE dep IS NULL;
--> result: mode=metadata
--> rows [copy-on-write]: SELECT count(DISTINCT partition) FROM db.t.data_files
--| 1
--> rows [merge-on-read]: SELECT count(DISTINCT partition) FROM db.t.data_files
--| 2

DELETE FROM db.t WHERE abs(id) > 0;
--> rows [merge-on-read]: SELECT count(*) FROM db.t.data_files
--| 2
--> rows: SELECT count(*) FROM db.t
--| 0
