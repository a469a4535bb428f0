-- ids: D2, D3, D4, D5
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

DELETE FROM db.t WHERE false;
--> unchanged

DELETE FROM db.t WHERE 50 <> 50;
--> unchanged

DELETE FROM db.t WHERE 1 > NULL;
--> unchanged

DELETE FROM db.t WHERE id = 1 AND id > 20;
--> unchanged

-- The files' bounds prove it.
DELETE FROM db.t WHERE id > 100;
--> unchanged

-- Rows have to be read to see it.
DELETE FROM db.t WHERE length(dep) > 100;
--> unchanged
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
