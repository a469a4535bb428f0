-- ids: M11
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING);
INSERT INTO db.t VALUES (1, 'a'), (NULL, 'b');

MERGE INTO db.t USING (SELECT * FROM VALUES (1), (NULL) AS v(id)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET dep = 'm' WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (s.id, 'new');
--> result: rows_updated=1, rows_inserted=1
--> rows
--| 1 | m
--| NULL | b
--| NULL | new

MERGE INTO db.t USING (SELECT CAST(NULL AS INT) AS id) s ON t.id <=> s.id WHEN MATCHED THEN DELETE;
--> result: rows_deleted=2
--> rows
--| 1 | m

MERGE INTO db.t USING (SELECT 1 AS id) s ON t.id = s.id AND NULL
WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (s.id, 'twice');
--> rows
--| 1 | m
--| 1 | twice

MERGE INTO db.t USING (SELECT 2 AS id) s ON 1 != 1
WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (s.id, 'new')
WHEN NOT MATCHED BY SOURCE AND dep = 'm' THEN DELETE;
--> rows
--| 1 | twice
--| 2 | new
