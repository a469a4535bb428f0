-- ids: U15
-- partitioned by: dep
-- formats: 3
-- readers: pyiceberg, duckdb

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

UPDATE db.t SET salary = salary WHERE id = 1;
--> result: rows_updated=1
--> snapshot: operation=overwrite

SELECT id, _last_updated_sequence_number FROM db.t;
--> rows
--| 1 | 2
--| 2 | 1
--| 3 | 1
--| 4 | 1
--| 5 | 1

-- Every row keeps its id.
SELECT count(DISTINCT _row_id), max(_row_id) FROM db.t;
--> rows
--| 5 | 4
