-- ids: M28
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, s STRUCT<a: INT>);
INSERT INTO db.t VALUES (1, 'hr', named_struct('a', 1)), (2, 'it', NULL);

-- Without the words the columns that the target lacks are left out.
MERGE INTO db.t USING (SELECT 1 AS id, 'hr' AS dep, named_struct('a', 10) AS s, 'x' AS note) src ON t.id = src.id WHEN MATCHED THEN UPDATE SET *;
--> rows
--| 1 | hr | {a: 10}
--| 2 | it | NULL

MERGE WITH SCHEMA EVOLUTION INTO db.t
USING (SELECT * FROM VALUES (1, named_struct('a', 11, 'b', 'n'), 'x'), (3000000000, named_struct('a', 12, 'b', 'm'), 'y') AS v(id, s, note)) src
ON t.id = src.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
--> rows
--| 1 | hr | {a: 11, b: n} | x
--| 2 | it | NULL | NULL
--| 3000000000 | NULL | {a: 12, b: m} | y
