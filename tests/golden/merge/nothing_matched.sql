-- ids: M21, M22
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT 6 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET salary = 1 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
--> result: rows_updated=0, rows_inserted=1
--> snapshot: operation=append, added-records=1, deleted-data-files=absent, added-delete-files=absent

MERGE INTO db.t USING (SELECT 99 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET salary = 1;
--> unchanged

MERGE INTO db.t USING (SELECT 1 AS id, 0 AS x) s ON t.id = s.id WHEN MATCHED AND x = 1 THEN UPDATE SET salary = 1;
--> unchanged
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
--| 6 | NULL | NULL
