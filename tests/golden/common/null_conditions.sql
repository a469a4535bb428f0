-- ids: C1, C2, C3
-- partitioned by: dep
-- formats: 1, 2, 3

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

DELETE FROM db.t WHERE salary = NULL;
--> unchanged

DELETE FROM db.t WHERE salary IN (1, NULL);
--> unchanged

DELETE FROM db.t WHERE salary NOT IN (NULL, 1);
--> unchanged

-- The row whose salary is NULL is carried over by the rewrite.
DELETE FROM db.t WHERE salary NOT IN (100, 300);
--> result: rows_deleted=2
--> rows
--| 1 | hr | 100
--| 3 | it | 300
--| 4 | it | NULL

UPDATE db.t SET dep = 'none' WHERE salary <=> NULL;
--> result: rows_updated=1
--> rows
--| 1 | hr | 100
--| 3 | it | 300
--| 4 | none | NULL

-- NULL alone is a condition that is never true.
DELETE FROM db.t WHERE NULL;
--> unchanged

DELETE FROM db.t WHERE ((NULL));
--> unchanged

UPDATE db.t SET salary = 0 WHERE null;
--> unchanged

MERGE INTO db.t USING (SELECT 3 AS id) s ON NULL WHEN MATCHED THEN DELETE;
--> unchanged

MERGE INTO db.t USING (SELECT 3 AS id) s ON t.id = s.id WHEN MATCHED AND NULL THEN DELETE;
--> unchanged

MERGE INTO db.t USING (SELECT 7 AS id) s ON t.id = s.id WHEN NOT MATCHED AND (NULL) THEN INSERT (id) VALUES (s.id);
--> unchanged

MERGE INTO db.t USING (SELECT 3 AS id) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND NULL THEN DELETE;
--> unchanged

-- The clause behind it has its turn.
MERGE INTO db.t USING (SELECT * FROM VALUES (3), (7) AS v(id)) s ON t.id = s.id
WHEN MATCHED AND NULL THEN DELETE WHEN MATCHED THEN UPDATE SET salary = 1
WHEN NOT MATCHED AND NULL THEN INSERT (id) VALUES (0) WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)
WHEN NOT MATCHED BY SOURCE AND NULL THEN DELETE WHEN NOT MATCHED BY SOURCE THEN UPDATE SET dep = 'x';
--> rows
--| 1 | x | 100
--| 3 | it | 1
--| 4 | x | NULL
--| 7 | NULL | NULL

MERGE INTO db.t USING (SELECT 7 AS id) s ON (NULL) WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (8, 'new');
--> result: rows_inserted=1, rows_deleted=0
