-- ids: C34
-- partitioned by: id

-- One file whose only number is small beside a NaN, one without a bound above 1.
CREATE TABLE db.t (id INT, d DOUBLE);
INSERT INTO db.t VALUES (1, DOUBLE('NaN')), (2, 0.5D), (3, -0.0D), (4, NULL);

UPDATE db.t SET id = id + 10 WHERE d = DOUBLE('NaN');
--> result: rows_updated=1

UPDATE db.t SET id = id + 10 WHERE d = 0.0D;
--> result: rows_updated=1

MERGE INTO db.t USING (SELECT * FROM VALUES (DOUBLE('NaN')), (0.0D) AS v(x)) s ON t.d = s.x WHEN MATCHED THEN UPDATE SET id = id + 100;
--> rows
--| 111 | NaN
--| 2 | 0.5
--| 113 | -0.0
--| 4 | NULL

-- NaN is greater than every number.
DELETE FROM db.t WHERE d > 1;
--> rows
--| 2 | 0.5
--| 113 | -0.0
--| 4 | NULL
