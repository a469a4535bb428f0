-- ids: M5, M24
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

-- Columns are bound by name, whatever their order; what the target does not have is left out.
MERGE INTO db.t USING (SELECT * FROM VALUES (50, 'x', true, 5), (60, 'y', false, 6) AS v(salary, dep, more, id)) s ON s.id = t.id
WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | x | 50
--| 6 | y | 60

MERGE INTO db.t USING (SELECT 5 AS id, 'z' AS dep) s ON s.id = t.id WHEN MATCHED THEN UPDATE SET *;
--> error AnalysisError unresolved-column: salary

MERGE INTO db.t USING (SELECT 9 AS id, 'z' AS dep) s ON s.id = t.id WHEN NOT MATCHED THEN INSERT *;
--> error AnalysisError unresolved-column: salary
