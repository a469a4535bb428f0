-- ids: H5, H6
-- partitioned by: dep
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'it', 200), (3, 'it', 200);
UPDATE db.t SET salary = 300 WHERE id = 2;
DELETE FROM db.t WHERE id = 1;
MERGE INTO db.t USING (SELECT 2 AS id, 'it' AS dep, 200 AS salary UNION ALL SELECT 4, 'hr', NULL) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;

-- Row 3 is rewritten twice, and never changed.
CALL system.create_changelog_view(table => 'db.t');
--> rows: SELECT id, dep, salary, _change_type, _change_ordinal FROM t_changes
--| 1 | hr | 100 | INSERT | 0
--| 2 | it | 200 | INSERT | 0
--| 3 | it | 200 | INSERT | 0
--| 2 | it | 200 | DELETE | 1
--| 2 | it | 300 | INSERT | 1
--| 1 | hr | 100 | DELETE | 2
--| 2 | it | 300 | DELETE | 3
--| 2 | it | 200 | INSERT | 3
--| 4 | hr | NULL | INSERT | 3

CALL lake.system.create_changelog_view('lake.db.t', 'updates', identifier_columns => array('id'));
--> rows: SELECT id, salary, _change_type FROM updates WHERE _change_ordinal IN (1, 3)
--| 2 | 200 | UPDATE_BEFORE
--| 2 | 300 | UPDATE_AFTER
--| 2 | 300 | UPDATE_BEFORE
--| 2 | 200 | UPDATE_AFTER
--| 4 | NULL | INSERT

-- What later snapshots undid is left out, and a rewritten row keeps the ordinal of its insert.
CALL system.create_changelog_view(table => 'db.t', net_changes => true);
--> rows: SELECT id, dep, salary, _change_type, _change_ordinal FROM t_changes
--| 2 | it | 200 | INSERT | 3
--| 3 | it | 200 | INSERT | 0
--| 4 | hr | NULL | INSERT | 3

CALL system.create_changelog_view(table => 'db.t', net_changes => true, options => map('end-timestamp', '1'));
--> rows: SELECT * FROM t_changes

CALL system.create_changelog_view(table => 'db.t', options => map('start-snapshot-id', '1'));
--> error ValidationFailedError validation-failed: Starting snapshot (exclusive) 1 is not a parent ancestor of end snapshot

CALL system.create_changelog_view(table => 'db.t', options => map('start-snapshot', '1'));
--> error AnalysisError invalid-value: create_changelog_view has no option 'start-snapshot'

CALL system.create_changelog_view(table => 'db.t', identifier_columns => array('name'));
--> error NotFoundError not-found: Cannot find the identifier column 'name'
