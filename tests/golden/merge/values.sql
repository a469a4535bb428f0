-- ids: M9
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT * FROM VALUES (1), (9) AS v(id)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET salary = (SELECT max(salary) FROM db.t) + 1
WHEN NOT MATCHED THEN INSERT (id, salary) VALUES (s.id, (SELECT count(*) FROM db.t));
--> rows
--| 1 | hr | 501
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
--| 9 | NULL | 5

MERGE INTO db.t USING (SELECT * FROM VALUES (10), (11) AS v(id)) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (s.id, uuid());
--> result: rows_inserted=2
--> rows: SELECT count(DISTINCT dep), max(length(dep)) FROM db.t WHERE id >= 10
--| 2 | 36
