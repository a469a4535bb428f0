-- ids: C16, C17
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t SET TBLPROPERTIES ('write.wap.enabled' = 'true');
SET spark.wap.id = audit-1;

UPDATE db.t SET salary = 0 WHERE id = 1;
--> snapshot: operation=overwrite, wap.id=audit-1
--> rows: SELECT id, salary FROM db.t WHERE id = 1
--| 1 | 100

-- A delete of whole files is staged, too.
DELETE FROM db.t;
--> result: mode=metadata
--> snapshot: operation=delete, wap.id=audit-1
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500

SET spark.wap.branch = nightly;

DELETE FROM db.t WHERE id = 1;
--> error AnalysisError invalid-property: Cannot set both WAP ID and branch

RESET spark.wap.branch;
