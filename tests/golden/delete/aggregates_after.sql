-- ids: D21
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

DELETE FROM db.t WHERE salary = 500;

SELECT min(id), max(id), count(*), max(salary) FROM db.t;
--> rows
--| 1 | 4 | 4 | 300

DELETE FROM db.t WHERE id = 1;

SELECT min(id), max(id), count(*), min(salary) FROM db.t;
--> rows
--| 2 | 4 | 3 | 200
