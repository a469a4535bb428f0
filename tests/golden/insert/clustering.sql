-- ids: I11
-- formats: 2
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT) PARTITIONED BY (dep);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t SET TBLPROPERTIES ('write.spark.fanout.enabled' = 'false', 'write.distribution-mode' = 'none');

-- Rows are sorted by partition before they are written: with one writer open at a time, partitions follow each other.
INSERT INTO db.t SELECT * FROM VALUES (6, 'a', 1), (7, 'b', 1), (8, 'a', 1), (9, 'b', 1) AS v(id, dep, salary);
--> result: rows_inserted=4
--> rows: SELECT id, dep FROM db.t WHERE id > 5
--| 6 | a
--| 7 | b
--| 8 | a
--| 9 | b
