-- ids: C32
-- partitioned by: id
-- formats: 2

CREATE TABLE db.t (id INT, s STRUCT<n1: INT, n2: STRUCT<m: INT, k: STRING>>);
INSERT INTO db.t VALUES (1, named_struct('n1', 1, 'n2', named_struct('m', 2, 'k', 'x')));

UPDATE db.t SET s = named_struct('n2', named_struct('k', 'y', 'm', 20), 'n1', 10);
--> rows
--| 1 | {n1: 10, n2: {m: 20, k: y}}

MERGE INTO db.t USING (SELECT 2 AS id, named_struct('n2', named_struct('k', 'z', 'm', 30), 'n1', 30) AS s) AS src
ON t.id = src.id WHEN NOT MATCHED THEN INSERT *;
--> rows
--| 1 | {n1: 10, n2: {m: 20, k: y}}
--| 2 | {n1: 30, n2: {m: 30, k: z}}

UPDATE db.t SET s = named_struct('n1', 1);
--> error AnalysisError type-mismatch: n2

UPDATE db.t SET s = named_struct('n1', 1, 'n2', named_struct('m', 1, 'k', 'x', 'extra', 1));
--> error AnalysisError type-mismatch: extra
