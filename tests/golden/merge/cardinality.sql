-- ids: M14, M15, M16, M17
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT * FROM VALUES (1, 1), (1, 2) AS v(id, x)) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET salary = x;
--> error DataError cardinality-violation: more than one row of the source

-- Also where no clause wants the row.
MERGE INTO db.t USING (SELECT * FROM VALUES (1, 1), (1, 2) AS v(id, x)) s ON t.id = s.id WHEN MATCHED AND x > 5 THEN UPDATE SET salary = x;
--> error DataError cardinality-violation: more than one row of the source

MERGE INTO db.t USING (SELECT * FROM VALUES (1, 1), (1, 2) AS v(id, x)) s ON t.id = s.id WHEN MATCHED AND x = 1 THEN DELETE;
--> error DataError cardinality-violation: more than one row of the source

-- Without an equality.
MERGE INTO db.t USING (SELECT * FROM VALUES (150), (250) AS v(x)) s ON t.salary > s.x
WHEN MATCHED THEN UPDATE SET salary = x WHEN NOT MATCHED THEN INSERT (id) VALUES (x);
--> error DataError cardinality-violation: more than one row of the source

-- One source row may match many target rows.
MERGE INTO db.t USING (SELECT 'hr' AS dep) s ON t.dep = s.dep WHEN MATCHED THEN UPDATE SET salary = 0;
--> result: rows_updated=2

-- A single unconditional DELETE may match twice.
MERGE INTO db.t USING (SELECT * FROM VALUES (1), (1), (3) AS v(id)) s ON t.id = s.id WHEN MATCHED THEN DELETE;
--> result: rows_deleted=2
--> rows
--| 2 | hr | 0
--| 4 | it | NULL
--| 5 | NULL | 500
