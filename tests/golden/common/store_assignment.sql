-- ids: C28, C29, C30
-- partitioned by: s
-- formats: 2

CREATE TABLE db.t (i INT, b FLOAT, l BIGINT, d DOUBLE, s STRING);
INSERT INTO db.t VALUES (1, 1.0, 1, 1.5, 'a');

UPDATE db.t SET s = 12, i = 7.9D, l = i, d = b;
--> rows
--| 7 | 1.0 | 1 | 1.0 | 12

UPDATE db.t SET i = 'x';
--> error AnalysisError type-mismatch: STRING

INSERT INTO db.t VALUES ('x', 1, 1, 1.0, 'a');
--> error [python] AnalysisException INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST: Cannot safely cast `i` "STRING" to "INT"
--> error AnalysisError type-mismatch: STRING

UPDATE db.t SET i = 3000000000;
--> error DataError overflow: INT

INSERT INTO db.t VALUES (1, 1, 1, 1.0, 'a'), (3000000000, 1, 1, 1.0, 'a');
--> error [python] ArithmeticException CAST_OVERFLOW_IN_TABLE_INSERT: "INT" type column or variable `i` due to an overflow
--> error DataError overflow: INT

SET spark.sql.storeAssignmentPolicy = STRICT;

UPDATE db.t SET i = NULL;
--> error AnalysisError type-mismatch: VOID

UPDATE db.t SET i = d;
--> error AnalysisError type-mismatch: DOUBLE

UPDATE db.t SET l = i;
--> rows
--| 7 | 1.0 | 7 | 1.0 | 12

SET spark.sql.storeAssignmentPolicy = LEGACY;

UPDATE db.t SET i = 1;
--> error NotSupportedError not-supported: storeAssignmentPolicy
