-- ids: C5, C6
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
CREATE TABLE db.s (id INT, dep STRING);
INSERT INTO db.s VALUES (1, 'hr'), (3, 'sales');

DELETE FROM db.t WHERE EXISTS (SELECT 1 FROM db.s WHERE s.id = t.id) AND dep = 'it' OR id = 5;
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 4 | it | NULL

-- The subquery on the target sees the state before the statement.
UPDATE db.t SET salary = salary + 1 WHERE salary = (SELECT max(salary) FROM db.t) OR id IN (SELECT id FROM db.s);
--> rows
--| 1 | hr | 101
--| 2 | hr | 201
--| 4 | it | NULL

DELETE FROM db.t WHERE NOT EXISTS (SELECT 1 FROM db.s WHERE s.id <= t.id AND s.dep = t.dep);
--> rows
--| 1 | hr | 101
--| 2 | hr | 201

DELETE FROM db.t WHERE id = (SELECT id FROM db.s);
--> error DataError cardinality-violation: more than one row

-- No row stands for NULL.
DELETE FROM db.t WHERE id = (SELECT id FROM db.s WHERE id > 10);
--> unchanged
--> rows
--| 1 | hr | 101
--| 2 | hr | 201
