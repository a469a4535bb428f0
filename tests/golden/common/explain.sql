-- ids: C11
-- partitioned by: dep
-- formats: 2

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

EXPLAIN DELETE FROM db.t WHERE id = 1;
--> unchanged

EXPLAIN UPDATE db.t SET salary = 0;
--> unchanged

EXPLAIN MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE;
--> unchanged

EXPLAIN INSERT INTO db.t VALUES (6, 'hr', 600);
--> unchanged
--> rows: SELECT * FROM db.t
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
