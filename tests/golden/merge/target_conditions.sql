-- ids: M12, M13
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

-- Row 1 matches by its key, but not by its department: its source row inserts.
MERGE INTO db.t USING (SELECT * FROM VALUES (1), (3) AS v(id)) s ON t.id = s.id AND t.dep IN ('it')
WHEN MATCHED THEN UPDATE SET salary = 0 WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (s.id, 'new');
--> result: rows_updated=1, rows_inserted=1
--> rows
--| 1 | hr | 100
--| 1 | new | NULL
--| 2 | hr | 200
--| 3 | it | 0
--| 4 | it | NULL
--| 5 | NULL | 500

-- Every other row is not matched by the source.
MERGE INTO db.t USING (SELECT 3 AS id) s ON t.id = s.id AND t.dep = 'it'
WHEN MATCHED THEN UPDATE SET salary = 3 WHEN NOT MATCHED BY SOURCE AND t.dep = 'hr' OR t.id = 5 THEN UPDATE SET salary = -1;
--> rows
--| 1 | hr | -1
--| 1 | new | NULL
--| 2 | hr | -1
--| 3 | it | 3
--| 4 | it | NULL
--| 5 | NULL | -1
