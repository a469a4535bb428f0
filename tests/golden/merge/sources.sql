-- ids: M24
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING);
CREATE TABLE db.s (id INT, dep STRING);
INSERT INTO db.s VALUES (1, 'table');
CREATE OR REPLACE TEMPORARY VIEW changes AS SELECT 2 AS id, 'view' AS dep;

MERGE INTO db.t USING db.s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *;
--> result: rows_inserted=1

MERGE INTO db.t USING changes AS c ON t.id = c.id WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (c.id, c.dep);
--> result: rows_inserted=1

MERGE INTO db.t USING (SELECT 3 AS id, 'union' AS dep UNION ALL SELECT * FROM db.s EXCEPT SELECT 9, 'x') u ON t.id = u.id WHEN NOT MATCHED THEN INSERT *;
--> result: rows_inserted=1

WITH c AS (SELECT 4 AS id, 'with' AS dep) MERGE INTO db.t USING c ON t.id = c.id WHEN NOT MATCHED THEN INSERT *;
--> result: rows_inserted=1

MERGE INTO db.t USING (SELECT * FROM VALUES (5, 'values') AS w(id, dep)) AS v ON t.id = v.id WHEN NOT MATCHED THEN INSERT *;
--> rows
--| 1 | table
--| 2 | view
--| 3 | union
--| 4 | with
--| 5 | values
