-- ids: U7
-- partitioned by: a

CREATE TABLE db.t (id INT, a STRING, b STRING, r DOUBLE);
INSERT INTO db.t VALUES (1, 'x', 'x', 0), (2, 'x', 'x', 0), (3, 'x', 'x', 0);

UPDATE db.t SET a = uuid(), r = rand() WHERE id < 3;
--> result: rows_updated=2
--> rows: SELECT count(*), count(DISTINCT a), count(DISTINCT r), max(length(a)) FROM db.t
--| 3 | 3 | 3 | 36
