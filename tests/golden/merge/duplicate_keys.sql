-- ids: M16, M18
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

-- Without WHEN MATCHED a matched row stays, once, however many source rows match it.
MERGE INTO db.t USING (SELECT * FROM VALUES (1), (1), (3), (3) AS v(id)) s ON t.id = s.id
WHEN NOT MATCHED BY SOURCE AND t.dep = 'hr' THEN UPDATE SET salary = 0;
--> result: rows_updated=1
--> rows
--| 1 | hr | 100
--| 2 | hr | 0
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500

MERGE INTO db.t USING (SELECT * FROM VALUES (1), (1), (6), (6) AS v(id)) s ON t.id = s.id
WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) WHEN NOT MATCHED BY SOURCE AND t.id = 5 THEN DELETE;
--> result: rows_inserted=2, rows_deleted=1
--> rows
--| 1 | hr | 100
--| 2 | hr | 0
--| 3 | it | 300
--| 4 | it | NULL
--| 6 | NULL | NULL
--| 6 | NULL | NULL
