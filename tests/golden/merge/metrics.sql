-- ids: M29
-- partitioned by: id

CREATE TABLE db.t (id INT, v INT);
INSERT INTO db.t SELECT /*+ COALESCE(1) */ CAST(id AS INT), 0 FROM range(1, 7, 1, 1);

MERGE INTO db.t USING (SELECT * FROM VALUES (1), (2), (9) AS s(id)) s ON t.id = s.id
WHEN MATCHED AND t.id = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET v = 1 WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)
WHEN NOT MATCHED BY SOURCE AND t.id = 3 THEN UPDATE SET v = 3 WHEN NOT MATCHED BY SOURCE AND t.id = 4 THEN DELETE;
--> result: rows_deleted=2, rows_updated=2, rows_inserted=1
--> snapshot: spark.merge-into.num-target-rows-deleted=2, spark.merge-into.num-target-rows-updated=2, spark.merge-into.num-target-rows-inserted=1
--> snapshot: spark.merge-into.num-target-rows-matched-updated=1, spark.merge-into.num-target-rows-matched-deleted=1
--> snapshot: spark.merge-into.num-target-rows-not-matched-by-source-updated=1, spark.merge-into.num-target-rows-not-matched-by-source-deleted=1
--> snapshot [copy-on-write unpartitioned]: spark.merge-into.num-target-rows-copied=2
--> snapshot [copy-on-write partitioned]: spark.merge-into.num-target-rows-copied=0
--> snapshot [merge-on-read]: spark.merge-into.num-target-rows-copied=0
--> rows
--| 2 | 1
--| 3 | 3
--| 5 | 0
--| 6 | 0
--| 9 | NULL
