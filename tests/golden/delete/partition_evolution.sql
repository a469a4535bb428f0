-- ids: D18, U9, U18, D9
-- readers: pyiceberg

CREATE TABLE db.t (id INT, dep STRING, region STRING) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 'eu'), (2, 'hr', 'us');
ALTER TABLE db.t ADD PARTITION FIELD region;
INSERT INTO db.t VALUES (3, 'hr', 'eu'), (4, 'it', 'us'), (5, 'it', 'us');
ALTER TABLE db.t DROP PARTITION FIELD dep;
INSERT INTO db.t VALUES (6, 'it', 'eu'), (7, 'it', 'eu');

DELETE FROM db.t WHERE id IN (1, 4, 6);
--> result: rows_deleted=3
--> snapshot [merge-on-read]: added-delete-files=3, changed-partition-count=3
--> rows [merge-on-read]: SELECT spec_id FROM db.t.delete_files
--| 0
--| 1
--| 2

-- A row moves to the partition of its new values, in the current partitioning.
UPDATE db.t SET region = 'asia' WHERE id IN (2, 5);
--> result: rows_updated=2
--> rows
--| 2 | hr | asia
--| 3 | hr | eu
--| 5 | it | asia
--| 7 | it | eu
--> rows: SELECT DISTINCT partition.region FROM db.t.data_files WHERE partition.region = 'asia'
--| asia

-- One spec has whole partitions of dep, another has not: files decide.
DELETE FROM db.t WHERE dep = 'hr';
--> result: rows_deleted=2
--> rows
--| 5 | it | asia
--| 7 | it | eu
