-- ids: I5, M27
-- formats: 1, 2

-- Format version 1 keeps a dropped partition field as a void one: it partitions nothing.
CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'it', 200);
ALTER TABLE db.t DROP PARTITION FIELD dep;

INSERT INTO db.t VALUES (3, 'it', 300), (4, NULL, 400);
--> snapshot: operation=append, added-records=2

MERGE INTO db.t USING (SELECT 5 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
UPDATE db.t SET salary = 0 WHERE id = 3;
--> rows
--| 1 | hr | 100
--| 2 | it | 200
--| 3 | it | 0
--| 4 | NULL | 400
--| 5 | NULL | NULL

-- All rows are of the one partition that the new rows lie in, those of older specs too.
SET spark.sql.sources.partitionOverwriteMode = dynamic;
INSERT OVERWRITE db.t VALUES (9, 'z', 900);
--> rows
--| 9 | z | 900
