-- ids: U17
-- formats: 2
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

UPDATE db.t SET salary = 1 WHERE id = 5;
--> rows: SELECT DISTINCT sort_order_id FROM db.t.data_files
--| 0

ALTER TABLE db.t WRITE ORDERED BY id DESC;

INSERT INTO db.t VALUES (6, 'ops', 600), (7, 'ops', 700), (8, 'ops', 800);
--> rows: SELECT sum(record_count) FROM db.t.data_files WHERE sort_order_id = 1
--| 3

-- Rewritten and updated rows are sorted as well.
UPDATE db.t SET salary = salary + 1 WHERE dep = 'ops' AND id > 6;
--> rows: SELECT id, salary FROM db.t WHERE id > 5
--| 6 | 600
--| 7 | 701
--| 8 | 801

UPDATE db.t SET salary = salary + 1 WHERE dep = 'ops' AND id > 7;
--> rows: SELECT count(*) > 0 FROM db.t.data_files WHERE sort_order_id = 1 AND file_path IN (SELECT _file FROM db.t WHERE id = 8)
--| true
