-- ids: C25, D24
-- formats: 2
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

DELETE FROM db.t.snapshots;
--> error NotSupportedError not-supported: metadata table

DELETE FROM lake.db.nothing WHERE id = 1;
--> error NotFoundError not-found: lake.db.nothing
