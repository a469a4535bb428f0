-- ids: M3, M4
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT * FROM VALUES (1, 'a'), (2, 'b'), (4, 'c'), (7, 'd'), (8, NULL), (9, 'e') AS v(id, x)) s ON t.id = s.id
WHEN MATCHED AND t.salary > 150 THEN DELETE
WHEN MATCHED AND t.salary > 50 THEN UPDATE SET dep = s.x, salary = t.salary + s.id
WHEN NOT MATCHED AND s.x > 'd' THEN INSERT (id, dep) VALUES (s.id, s.x)
WHEN NOT MATCHED AND s.x = 'd' THEN INSERT (id, dep, salary) VALUES (s.id, upper(x), 7)
WHEN NOT MATCHED BY SOURCE AND salary > 400 THEN DELETE
WHEN NOT MATCHED BY SOURCE AND t.dep IS NOT NULL THEN UPDATE SET salary = -salary;
--> result: rows_deleted=2, rows_updated=2, rows_inserted=2
--> rows
--| 1 | a | 101
--| 3 | it | -300
--| 4 | it | NULL
--| 7 | D | 7
--| 9 | e | NULL
