-- ids: C15, M31
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t CREATE BRANCH other;
ALTER TABLE db.t SET TBLPROPERTIES ('write.wap.enabled' = 'true');
SET spark.wap.branch = nightly;

-- The branch is not there yet: main is read.
SELECT id FROM db.t WHERE id > 3;
--> rows
--| 4
--| 5

MERGE INTO db.t USING (SELECT * FROM VALUES (1), (6) AS v(id)) s ON t.id = s.id
WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
--> result: branch=nightly, rows_deleted=1, rows_inserted=1
--> rows: SELECT id FROM db.t
--| 2
--| 3
--| 4
--| 5
--| 6

-- The second MERGE reads what the first one wrote.
MERGE INTO db.t USING (SELECT * FROM VALUES (1), (6) AS v(id)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET salary = 600 WHEN NOT MATCHED THEN INSERT (id, salary) VALUES (s.id, 1);
--> rows: SELECT id, salary FROM db.t
--| 1 | 1
--| 2 | 200
--| 3 | 300
--| 4 | NULL
--| 5 | 500
--| 6 | 600

-- A branch that the statement names wins.
DELETE FROM db.t.branch_other WHERE id = 5;
--> result: branch=other
--> rows: SELECT count(*) FROM db.t
--| 6
--> rows: SELECT count(*) FROM db.t.branch_other
--| 4
--> rows: SELECT count(*) FROM db.t.branch_main
--| 5

ALTER TABLE db.t SET TBLPROPERTIES ('write.wap.enabled' = 'false');

SELECT id FROM db.t;
--> rows
--| 1
--| 2
--| 3
--| 4
--| 5
