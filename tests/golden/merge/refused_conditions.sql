-- ids: M8
-- formats: 2

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id AND rand() > 0.5 WHEN MATCHED THEN DELETE;
--> error AnalysisError invalid-condition: SEARCH condition. Non-deterministic expressions (rand) are not allowed

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = max(s.id) WHEN MATCHED THEN DELETE;
--> error AnalysisError invalid-condition: SEARCH condition. Aggregates are not allowed

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id IN (SELECT 1) WHEN MATCHED THEN DELETE;
--> error AnalysisError invalid-condition: SEARCH condition. Subqueries are not allowed

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED AND rand() > 0.5 THEN UPDATE SET salary = 0;
--> error AnalysisError invalid-condition: UPDATE condition. Non-deterministic

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED AND EXISTS (SELECT 1) THEN DELETE;
--> error AnalysisError invalid-condition: DELETE condition. Subqueries

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED AND sum(s.id) > 0 THEN INSERT (id) VALUES (s.id);
--> error AnalysisError invalid-condition: INSERT condition. Aggregates

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.id > (SELECT 1) THEN DELETE;
--> error AnalysisError invalid-condition: DELETE condition. Subqueries

-- An aggregate inside of a subquery is the subquery's.
MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED AND t.id > (SELECT max(id) FROM db.t) THEN DELETE;
--> error AnalysisError invalid-condition: DELETE condition. Subqueries are not allowed

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id AND random() > 0.5 WHEN MATCHED THEN DELETE;
--> error AnalysisError invalid-condition: Non-deterministic expressions (random) are not allowed
