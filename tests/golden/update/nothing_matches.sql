-- ids: U10
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

UPDATE db.t SET salary = 0 WHERE id = 99;
--> unchanged
--> result: rows_matched=0, rows_updated=0

UPDATE db.t SET salary = 0 WHERE length(dep) = 99;
--> unchanged

UPDATE db.t SET salary = 0 WHERE false;
--> unchanged
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
