-- ids: D1
-- partitioned by: dep
-- formats: 1, 2, 3
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

DELETE FROM db.t;
--> result: mode=metadata, rows_deleted=5
--> snapshot: operation=delete, deleted-records=5, added-data-files=absent
--> rows

INSERT INTO db.t VALUES (1, 'hr', 100);

DELETE FROM db.t WHERE true;
--> result: mode=metadata, rows_deleted=1
--> snapshot: operation=delete

INSERT INTO db.t VALUES (1, 'hr', 100);

DELETE FROM db.t WHERE 21 = 21;
--> result: mode=metadata, rows_deleted=1
--> snapshot: operation=delete

INSERT INTO db.t VALUES (1, 'hr', 100);

TRUNCATE TABLE db.t;
--> result: command=TRUNCATE, mode=metadata
--> snapshot: operation=delete, deleted-records=1
--> rows
