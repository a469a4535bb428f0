-- ids: C20
-- partitioned by: dep
-- formats: 2

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

-- The same text, before and after a statement, sees what is there then.
SELECT count(*), sum(salary) FROM db.t;
--> rows
--| 5 | 1100

UPDATE db.t SET salary = 0 WHERE id = 5;

SELECT count(*), sum(salary) FROM db.t;
--> rows
--| 5 | 600
