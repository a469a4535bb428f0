-- ids: M19
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT * FROM VALUES (3), (3), (3) AS v(id)) s ON t.id = s.id WHEN MATCHED THEN DELETE;
--> result: rows_deleted=1
--> snapshot [merge-on-read]: operation=delete, added-position-deletes=1
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 4 | it | NULL
--| 5 | NULL | 500
