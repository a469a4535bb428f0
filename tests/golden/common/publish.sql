-- ids: H1, H2, H3
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'it', 200);
ALTER TABLE db.t SET TBLPROPERTIES ('write.wap.enabled' = 'true');
ALTER TABLE db.t CREATE TAG before;
ALTER TABLE db.t CREATE BRANCH audit;

-- Main moves to a snapshot that directly follows it, whatever that did.
SET spark.wap.id = first;
DELETE FROM db.t WHERE id = 2;
RESET spark.wap.id;
CALL system.publish_changes(table => 'db.t', wap_id => 'first');
--> rows: SELECT * FROM db.t
--| 1 | hr | 100

-- An append that was staged before another commit becomes a new snapshot, once.
SET spark.wap.id = second;
INSERT INTO db.t VALUES (3, 'hr', 300);
UPDATE db.t.branch_audit SET salary = 0 WHERE id = 1;
RESET spark.wap.id;
INSERT INTO db.t VALUES (4, 'it', 400);

CALL lake.system.publish_changes('db.t', 'nope');
--> error NotFoundError not-found: Cannot apply unknown WAP ID 'nope'

CALL lake.system.publish_changes('db.t', 'second');
--> error ValidationFailedError validation-failed: Found multiple snapshots with WAP ID 'second'

SET spark.wap.id = third;
INSERT INTO db.t VALUES (5, 'hr', 500);
RESET spark.wap.id;
INSERT INTO db.t VALUES (6, 'it', NULL);

CALL lake.system.publish_changes('lake.db.t', concat('thi', 'rd'));
--> snapshot: operation=append, published-wap-id=third, wap.id=absent, added-records=1
--> rows: SELECT id FROM db.t
--| 1
--| 4
--| 5
--| 6

CALL system.publish_changes('db.t', 'third');
--> error ValidationFailedError validation-failed: Duplicate request to cherry pick wap id that was published already: third

-- Branches and tags as places of main; the current schema stays.
ALTER TABLE db.t ADD COLUMN note STRING;
CALL system.set_current_snapshot(table => 'db.t', ref => 'before');
--> rows: SELECT * FROM db.t
--| 1 | hr | 100 | NULL
--| 2 | it | 200 | NULL

INSERT INTO db.t.branch_audit VALUES (7, 'hr', 700, 'audited');
CALL system.fast_forward('db.t', 'main', 'audit');
--> rows: SELECT id, note FROM db.t
--| 1 | NULL
--| 2 | NULL
--| 7 | audited

CALL system.fast_forward('db.t', 'before', 'audit');
--> error AnalysisError invalid-value: Ref before is a tag not a branch

CALL system.fast_forward('db.t', 'main', 'before');
--> error ValidationFailedError validation-failed: Cannot fast-forward: main is not an ancestor of before

CALL system.set_current_snapshot('db.t');
--> error AnalysisError invalid-value: Either snapshot_id or ref must be provided, not both
