-- ids: C9, M4
-- partitioned by: dep
-- formats: 2

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300);
CREATE TABLE db.s (id INT, salary INT);
INSERT INTO db.s VALUES (1, 10), (9, 90);

-- The source has columns of the same names, so that bare ones are qualified and full ones shortened side by side.
MERGE INTO lake.db.t USING (SELECT 1 AS id, 7 AS salary) s ON lake.db.t.id = s.id
WHEN NOT MATCHED BY SOURCE AND lake.db.t.id = 2 AND salary > 0 THEN UPDATE SET lake.db.t.salary = lake.db.t.salary + db.t.id + t.id + salary;
--> result: rows_updated=1
--> rows
--| 1 | hr | 100
--| 2 | hr | 404
--| 3 | it | 300

MERGE INTO db.t USING db.s ON db.t.id = db.s.id
WHEN MATCHED THEN UPDATE SET db.t.salary = lake.db.s.salary + lake.db.t.salary
WHEN NOT MATCHED AND db.s.salary = 90 AND salary > 0 THEN INSERT (id, salary) VALUES (lake.db.s.id, db.s.salary + salary)
WHEN NOT MATCHED BY SOURCE AND db.t.id = 3 THEN DELETE;
--> result: rows_updated=1, rows_inserted=1, rows_deleted=1
--> rows
--| 1 | hr | 110
--| 2 | hr | 404
--| 9 | NULL | 180

-- The side that a clause does not see stays unseen, however it is called.
MERGE INTO db.t USING db.s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND lake.db.s.id = 1 THEN DELETE;
--> error AnalysisError unresolved-column: There is no column 'lake.db.s.id' here: the clause does not see the source

MERGE INTO db.t USING db.s ON t.id = s.id WHEN NOT MATCHED AND lake.db.t.id = 1 THEN INSERT (id) VALUES (s.id);
--> error AnalysisError unresolved-column: There is no column 'lake.db.t.id' here: the clause does not see the target

MERGE INTO db.t USING db.s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (db.t.id);
--> error AnalysisError unresolved-column: There is no column 'db.t.id' here: the clause does not see the target

-- The target beside itself: the one with the alias is not called by its name.
MERGE INTO db.t AS x USING db.t ON x.id = db.t.id + 1
WHEN NOT MATCHED BY SOURCE AND x.id = 9 AND db.t.id = 1 THEN DELETE;
--> error AnalysisError unresolved-column: There is no column 'db.t.id' here: the clause does not see the source
