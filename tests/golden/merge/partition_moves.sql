-- ids: M30
-- formats: 2, 3

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

MERGE INTO db.t USING (SELECT 1 AS id, 'it' AS d) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET dep = d
WHEN NOT MATCHED BY SOURCE AND dep = 'hr' THEN UPDATE SET dep = 'ops'
WHEN NOT MATCHED BY SOURCE AND dep = 'it' AND id = 3 THEN UPDATE SET dep = NULL;
--> result: rows_updated=3
--> rows
--| 1 | it | 100
--| 2 | ops | 200
--| 3 | NULL | 300
--| 4 | it | NULL
--| 5 | NULL | 500
--> rows: SELECT id FROM db.t WHERE dep = 'it'
--| 1
--| 4
--> rows: SELECT id FROM db.t WHERE dep IS NULL
--| 3
--| 5
