-- ids: C27
-- partitioned by: dep
-- formats: 1

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read', 'write.merge.mode' = 'merge-on-read');

DELETE FROM db.t WHERE id = 1;
--> error NotSupportedError not-supported: format version

UPDATE db.t SET salary = 0;
--> error NotSupportedError not-supported: format version

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE;
--> error NotSupportedError not-supported: format version
