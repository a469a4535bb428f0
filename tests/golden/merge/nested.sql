-- ids: M7
-- partitioned by: id

CREATE TABLE db.t (id INT, s STRUCT<c1: INT, c2: STRUCT<m: INT, n: STRING>>);
INSERT INTO db.t VALUES (1, named_struct('c1', 1, 'c2', named_struct('m', 2, 'n', 'x'))), (2, NULL), (3, NULL);

MERGE INTO db.t USING (SELECT * FROM VALUES (1, 10), (2, 20) AS v(id, x)) src ON t.id = src.id
WHEN MATCHED THEN UPDATE SET t.s.c2.m = x, s.c1 = s.c1 + src.id
WHEN NOT MATCHED BY SOURCE THEN UPDATE SET s.c2.n = 'none';
--> rows
--| 1 | {c1: 2, c2: {m: 10, n: x}}
--| 2 | {c1: NULL, c2: {m: 20, n: NULL}}
--| 3 | {c1: NULL, c2: {m: NULL, n: none}}

MERGE INTO db.t USING (SELECT 1 AS id) src ON t.id = src.id WHEN MATCHED THEN UPDATE SET s.c2 = NULL, s.c2.m = 1;
--> error SqlError invalid-assignment: Conflicting assignments

MERGE INTO db.t USING (SELECT 1 AS id) src ON t.id = src.id WHEN MATCHED THEN UPDATE SET s.c9 = NULL;
--> error AnalysisError unresolved-column: c9
