-- ids: U1, U2
-- partitioned by: a
-- formats: 1, 2, 3

CREATE TABLE db.t (a INT, b INT, c STRING);
INSERT INTO db.t VALUES (1, 2, 'x'), (3, NULL, 'y');

UPDATE db.t SET a = b, b = a;
--> result: rows_updated=2
--> rows
--| 2 | 1 | x
--| NULL | 3 | y

UPDATE db.t SET c = DEFAULT, a = coalesce(a, 0) + 1 WHERE b = 3;
--> rows
--| 2 | 1 | x
--| 1 | 3 | NULL
