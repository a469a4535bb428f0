-- ids: D7, D10, D19, D8
-- formats: 1, 2, 3
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
INSERT INTO db.t VALUES (6, 'ops', 600), (7, 'qa', 700), (8, 'law', 800), (9, 'art', 900);

DELETE FROM db.t WHERE dep = 'hr';
--> result: mode=metadata, rows_deleted=2
--> snapshot: operation=delete, deleted-data-files=1, changed-partition-count=1

-- NOT IN skips the partition of NULL.
DELETE FROM db.t WHERE dep NOT IN ('it', 'ops', 'qa', 'law');
--> result: mode=metadata, rows_deleted=1

DELETE FROM db.t WHERE dep <=> NULL;
--> result: mode=metadata, rows_deleted=1

DELETE FROM db.t WHERE dep IN ('qa', 'none') OR (dep LIKE 'l%' AND NOT dep = 'hr');
--> result: mode=metadata, rows_deleted=2

-- Of this partition every row matches, as the bounds of its file say.
DELETE FROM db.t WHERE id > 5 AND dep IS NOT NULL;
--> result: mode=metadata, rows_deleted=1

-- Of this one not.
DELETE FROM db.t WHERE dep = 'it' AND id = 3;
--> result: mode=copy-on-write, rows_deleted=1
--> rows
--| 4 | it | NULL
