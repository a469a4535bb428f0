-- ids: C19, M25, I7
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

-- Every read of the target in one statement sees the state before it.
UPDATE db.t SET salary = (SELECT count(*) FROM db.t WHERE dep = 'hr') WHERE id IN (SELECT max(id) FROM db.t);
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 2

MERGE INTO db.t USING db.t AS s ON t.id = s.id + 1 WHEN MATCHED THEN UPDATE SET salary = s.salary
WHEN NOT MATCHED THEN INSERT (id, dep, salary) VALUES (s.id + 1, 'new', s.salary);
--> result: rows_updated=4, rows_inserted=1
--> rows
--| 1 | hr | 100
--| 2 | hr | 100
--| 3 | it | 200
--| 4 | it | 300
--| 5 | NULL | NULL
--| 6 | new | 2

MERGE INTO db.t USING (SELECT max(id) AS id FROM db.t) s ON t.id = s.id WHEN MATCHED THEN DELETE;
--> result: rows_deleted=1

INSERT INTO db.t SELECT id + 10, dep, salary FROM db.t WHERE id <= 2;
--> rows: SELECT id, dep, salary FROM db.t WHERE id <> 3
--| 1 | hr | 100
--| 2 | hr | 100
--| 4 | it | 300
--| 5 | NULL | NULL
--| 11 | hr | 100
--| 12 | hr | 100

INSERT OVERWRITE db.t SELECT id, dep, id * 100 FROM db.t WHERE dep = 'hr';
--> rows
--| 1 | hr | 100
--| 2 | hr | 200
--| 11 | hr | 1100
--| 12 | hr | 1200
