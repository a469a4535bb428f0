-- ids: U8, U13
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
CREATE TABLE db.s (id INT, dep STRING);
INSERT INTO db.s VALUES (10, 'hr'), (20, 'it');

UPDATE db.t SET salary = (SELECT max(id) FROM db.s);
--> rows: SELECT id, salary FROM db.t
--| 1 | 20
--| 2 | 20
--| 3 | 20
--| 4 | 20
--| 5 | 20

-- Correlated, in both modes.
UPDATE db.t SET salary = (SELECT max(s.id) FROM db.s WHERE s.dep = t.dep) + id WHERE dep IN (SELECT dep FROM db.s) OR id = 5;
--> rows
--| 1 | hr | 11
--| 2 | hr | 12
--| 3 | it | 23
--| 4 | it | 24
--| 5 | NULL | NULL
