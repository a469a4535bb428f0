-- ids: I4, I5
-- formats: 2, 3

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

INSERT OVERWRITE db.t PARTITION (dep = 'hr') SELECT 10, 1000;
--> snapshot: operation=overwrite, deleted-records=2, added-records=1
--> rows
--| 10 | hr | 1000
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500

INSERT OVERWRITE db.t PARTITION (dep = 'it') SELECT id, salary FROM db.t WHERE id > 100;
--> snapshot: operation=delete, deleted-records=2
--> rows
--| 10 | hr | 1000
--| 5 | NULL | 500

SET spark.sql.sources.partitionOverwriteMode = dynamic;

-- Only the partitions of the new rows are replaced.
INSERT OVERWRITE db.t VALUES (11, 'it', 1100), (12, NULL, 1200);
--> snapshot: operation=overwrite, replace-partitions=true, deleted-records=1, added-records=2
--> rows
--| 10 | hr | 1000
--| 11 | it | 1100
--| 12 | NULL | 1200

INSERT OVERWRITE db.t SELECT * FROM db.t WHERE id > 100;
--> unchanged
