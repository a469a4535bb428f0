-- ids: C12, C18, M23
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t CREATE BRANCH audit;

DELETE FROM db.t.branch_audit WHERE id = 1;
--> result: branch=audit, rows_deleted=1
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
--> rows: SELECT id FROM db.t.branch_audit
--| 2
--| 3
--| 4
--| 5

-- The branch is written and read with the table's current schema.
ALTER TABLE db.t ADD COLUMN note STRING;

UPDATE db.t.branch_audit SET note = 'checked' WHERE id = 2;
--> rows: SELECT id, note FROM db.t.branch_audit
--| 2 | checked
--| 3 | NULL
--| 4 | NULL
--| 5 | NULL

MERGE INTO db.t.branch_audit AS t USING (SELECT 6 AS id) AS s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, note) VALUES (6, 'new');
--> rows: SELECT id, note FROM db.t.branch_audit WHERE note IS NOT NULL
--| 2 | checked
--| 6 | new
--> rows: SELECT id, note FROM db.t
--| 1 | NULL
--| 2 | NULL
--| 3 | NULL
--| 4 | NULL
--| 5 | NULL

DELETE FROM db.t.branch_none WHERE id = 1;
--> error NotFoundError not-found: Cannot use branch (does not exist): none

UPDATE db.t.branch_none SET salary = 0;
--> error NotFoundError not-found: Cannot use branch (does not exist): none

MERGE INTO db.t.branch_none AS t USING (SELECT 6 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE;
--> error NotFoundError not-found: Cannot use branch (does not exist): none

INSERT INTO db.t.branch_none VALUES (6, 'hr', 600, NULL);
--> error [python] NotFoundError not-found: There is no branch, tag or snapshot 'none'
--> error NotFoundError not-found: Cannot use branch (does not exist): none

ALTER TABLE db.t CREATE BRANCH audit RETAIN 7 DAYS;
--> error AlreadyExistsError already-exists: Ref audit already exists

ALTER TABLE db.t CREATE OR REPLACE BRANCH audit RETAIN 7 DAYS WITH SNAPSHOT RETENTION 2 SNAPSHOTS 36 HOURS;
--> rows: SELECT type, max_reference_age_in_ms, min_snapshots_to_keep, max_snapshot_age_in_ms FROM db.t.refs WHERE name = 'audit'
--| BRANCH | 604800000 | 2 | 129600000
--> rows: SELECT id FROM db.t.branch_audit
--| 1
--| 2
--| 3
--| 4
--| 5

ALTER TABLE db.t DROP TAG audit;
--> error AnalysisError analysis: Ref audit is a branch not a tag

ALTER TABLE db.t DROP BRANCH audit;
--> rows: SELECT name FROM db.t.refs
--| main
