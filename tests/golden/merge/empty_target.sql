-- ids: M23
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING);

MERGE INTO db.t USING (SELECT 1 AS id, 'a' AS dep) s ON t.id = s.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE THEN DELETE;
--> unchanged

MERGE INTO db.t USING (SELECT * FROM VALUES (1, 'a'), (1, 'b') AS v(id, dep)) s ON t.id = s.id
WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE;
--> snapshot: operation=append, added-records=2
--> rows
--| 1 | a
--| 1 | b
