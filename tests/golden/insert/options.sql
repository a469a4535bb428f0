-- ids: I8
-- formats: 2
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

INSERT INTO db.t WITH ('snapshot-property.reason' = 'test') VALUES (6, 'hr', 600);
--> snapshot: operation=append, reason=test

INSERT INTO db.t WITH ('isolation-level' = 'chaos') VALUES (7, 'hr', 700);
--> error AnalysisError invalid-property: isolation-level

INSERT INTO db.t WITH ('write-format' = 'csv') VALUES (7, 'hr', 700);
--> error AnalysisError invalid-property: write.format.default

INSERT INTO db.t WITH ('overwrite-mod' = 'dynamic') VALUES (7, 'hr', 700);
--> error NotSupportedError not-supported: overwrite-mod

INSERT OVERWRITE db.t WITH ('overwrite-mode' = 'dynamic') VALUES (8, 'hr', 800);
--> snapshot: operation=overwrite, replace-partitions=true, deleted-records=3
--> rows
--| 8 | hr | 800
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500
