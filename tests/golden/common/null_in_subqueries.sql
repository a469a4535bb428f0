-- ids: C4
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

DELETE FROM db.t WHERE id NOT IN (SELECT * FROM VALUES (1), (NULL) AS v(x));
--> unchanged

DELETE FROM db.t WHERE (id, salary) IN (SELECT * FROM VALUES (1, 100), (4, NULL), (2, 999) AS v(x, y));
--> rows
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
