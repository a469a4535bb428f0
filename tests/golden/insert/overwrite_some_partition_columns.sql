-- ids: I4, I5
-- formats: 2, 3
-- modes: copy-on-write

CREATE TABLE db.t (id INT, p STRING, q DOUBLE) PARTITIONED BY (p, q);
INSERT INTO db.t VALUES (1, 'x', 9.0), (2, 'x', 10.0), (3, 'y', 9.0);

SET spark.sql.sources.partitionOverwriteMode = dynamic;

-- The clause names one of two partition columns: the rows choose among the others.
INSERT OVERWRITE db.t PARTITION (p = 'x') SELECT 20, 10D;
--> snapshot: operation=overwrite, replace-partitions=true, deleted-records=1
--> rows
--| 1 | x | 9.0
--| 20 | x | 10.0
--| 3 | y | 9.0

-- All of them are constants: nothing is left to choose.
INSERT OVERWRITE db.t PARTITION (p = 'x', q = 9.0) SELECT 10;
--> snapshot: operation=overwrite, replace-partitions=absent, deleted-records=1
--> rows
--| 10 | x | 9.0
--| 20 | x | 10.0
--| 3 | y | 9.0

SET spark.sql.sources.partitionOverwriteMode = static;

INSERT OVERWRITE db.t PARTITION (p = 'x') SELECT 30, 11D;
--> snapshot: operation=overwrite, replace-partitions=absent, deleted-records=2
--> rows
--| 30 | x | 11.0
--| 3 | y | 9.0
