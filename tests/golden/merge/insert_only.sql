-- ids: M20
-- partitioned by: dep
-- formats: 1, 2, 3

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT * FROM VALUES (1, 'x'), (6, 'y'), (6, 'z'), (7, NULL) AS v(id, dep)) s ON t.id = s.id
WHEN NOT MATCHED AND dep IS NOT NULL THEN INSERT (id, dep) VALUES (s.id, s.dep);
--> result: rows_inserted=2, data_files_removed=0, delete_files_added=0
--> snapshot: operation=append, added-records=2
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
--| 6 | y | NULL
--| 6 | z | NULL

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
--> unchanged
