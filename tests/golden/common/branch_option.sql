-- ids: C13
-- partitioned by: dep
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t CREATE BRANCH audit;

INSERT INTO db.t WITH ('branch' = 'audit') VALUES (6, 'hr', 600);
--> result: branch=audit, rows_inserted=1
--> rows: SELECT id FROM db.t.branch_audit WHERE id > 4
--| 5
--| 6

INSERT INTO db.t.branch_audit WITH ('branch' = 'audit') VALUES (7, 'hr', 700);
--> rows: SELECT id FROM db.t.branch_audit WHERE id > 4
--| 5
--| 6
--| 7
--> rows: SELECT id FROM db.t WHERE id > 4
--| 5

INSERT INTO db.t.branch_audit WITH ('branch' = 'main') VALUES (8, 'hr', 800);
--> error NotSupportedError not-supported: audit
