-- ids: M6
-- partitioned by: dep

CREATE TABLE db.t (id INT NOT NULL, dep STRING, s STRUCT<a: INT>);
INSERT INTO db.t VALUES (1, 'hr', NULL);

MERGE INTO db.t USING (SELECT 2 AS k) s ON t.id = s.k WHEN NOT MATCHED THEN INSERT (dep, id) VALUES ('it', k);
--> rows
--| 1 | hr | NULL
--| 2 | it | NULL

MERGE INTO db.t USING (SELECT 3 AS k) src ON t.id = src.k WHEN NOT MATCHED THEN INSERT (dep) VALUES ('it');
--> error AnalysisError invalid-assignment: No assignment for 'id'

MERGE INTO db.t USING (SELECT 3 AS k) src ON t.id = src.k WHEN NOT MATCHED THEN INSERT (id, s.a) VALUES (k, 1);
--> error AnalysisError invalid-assignment: INSERT assignment keys cannot be nested fields

MERGE INTO db.t USING (SELECT 3 AS k) src ON t.id = src.k WHEN NOT MATCHED THEN INSERT (id, dep, id) VALUES (k, 'x', k);
--> error SqlError invalid-assignment: Multiple assignments for 'id'

MERGE INTO db.t USING (SELECT 3 AS k) src ON t.id = src.k WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (k);
--> error SqlError invalid-assignment: values
