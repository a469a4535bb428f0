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
