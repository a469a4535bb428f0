-- ids: U3, U5
-- formats: 2
-- readers: duckdb

CREATE TABLE db.t (id INT, c STRUCT<n1: INT, n2: STRUCT<m: INT>>, a ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<x: INT>>);
INSERT INTO db.t VALUES (1, NULL, NULL, NULL);

UPDATE db.t SET id = 1, id = 2;
--> error SqlError invalid-assignment: Multiple assignments for 'id'

UPDATE db.t SET c.n1 = 1, t.c.n1 = 2;
--> error SqlError invalid-assignment: Multiple assignments for 'c.n1'

UPDATE db.t SET c.n1 = 1, c = NULL;
--> error SqlError invalid-assignment: Conflicting assignments for 'c'

UPDATE db.t SET c.n2 = NULL, c.n2.m = 1;
--> error SqlError invalid-assignment: Conflicting assignments for

UPDATE db.t SET a.x = 1;
--> error AnalysisError invalid-assignment: only fields of structs

UPDATE db.t SET m.x = 1;
--> error AnalysisError invalid-assignment: only fields of structs

UPDATE db.t SET c.n3 = 1;
--> error AnalysisError unresolved-column: n3

UPDATE db.t SET idd = 1;
--> error AnalysisError unresolved-column: idd

UPDATE db.t SET id = sum(id);
--> error AnalysisError invalid-condition: Aggregates are not allowed in an assignment
