-- ids: I1, I2
-- partitioned by: dep
-- formats: 1, 2, 3
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

INSERT INTO db.t VALUES (6, 'ops');
--> error [python] AnalysisException INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS: not enough data columns
--> error AnalysisError invalid-assignment: too few

INSERT INTO db.t VALUES (6, 'ops', 600, 1);
--> error [python] AnalysisException INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS: too many data columns
--> error AnalysisError invalid-assignment: too many

INSERT INTO db.t (salary, id, dep) VALUES (600, 6, 'ops');
--> result: rows_inserted=1
--> snapshot: operation=append, added-records=1

INSERT INTO db.t BY NAME SELECT 'qa' AS dep, 7 AS id, 700 AS salary;
--> result: rows_inserted=1

-- A column that is left out is NULL, or has its default.
INSERT INTO db.t (id) VALUES (8);
--> rows: SELECT * FROM db.t WHERE id > 5
--| 6 | ops | 600
--| 7 | qa | 700
--| 8 | NULL | NULL

INSERT INTO db.t VALUES (9, 'x', DEFAULT);
--> rows: SELECT * FROM db.t WHERE id > 8
--| 9 | x | NULL

INSERT INTO db.t (id, dep, salary, nothing) VALUES (8, 'x', 1, 1);
--> error [python] AnalysisException INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS: too many data columns
--> error AnalysisError unresolved-column: nothing

INSERT INTO db.t BY NAME SELECT 1 AS id, 'x' AS dep, 1 AS salary, 2 AS other;
--> error [python] AnalysisException INSERT_COLUMN_ARITY_MISMATCH.TOO_MANY_DATA_COLUMNS: too many data columns
--> error AnalysisError unresolved-column: other
