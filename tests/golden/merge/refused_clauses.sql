-- ids: M1, M2, M4, M10
-- formats: 2

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id;
--> error SqlError syntax: WHEN

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET salary = 0;
--> error SqlError syntax: last

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (1) WHEN NOT MATCHED AND s.id = 1 THEN INSERT (id) VALUES (2);
--> error SqlError syntax: last

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id = 1 THEN DELETE;
--> error SqlError syntax: last

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN INSERT (id) VALUES (1);
--> error SqlError syntax: INSERT

-- WHEN NOT MATCHED sees the source alone.
MERGE INTO db.t USING (SELECT 9 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, salary) VALUES (s.id, t.salary);
--> error AnalysisError unresolved-column: t.salary

MERGE INTO db.t USING (SELECT 9 AS id) s ON t.id = s.id WHEN NOT MATCHED AND salary > 1 THEN INSERT (id) VALUES (s.id);
--> error AnalysisError unresolved-column: salary

-- WHEN NOT MATCHED BY SOURCE sees the target alone.
MERGE INTO db.t USING (SELECT 9 AS id, 1 AS x) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND s.x = 1 THEN DELETE;
--> error AnalysisError unresolved-column: s.x

MERGE INTO db.t USING (SELECT 9 AS id, 1 AS x) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET salary = x;
--> error AnalysisError unresolved-column: x

MERGE INTO db.t USING (SELECT 1 AS id, 0 AS salary) s ON id = 1 WHEN MATCHED THEN DELETE;
--> error AnalysisError ambiguous-column: id

MERGE INTO db.t USING (SELECT 1 AS id, 0 AS salary) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET dep = salary;
--> error AnalysisError ambiguous-column: salary
