-- ids: C22
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING);
ALTER TABLE db.t SET TBLPROPERTIES ('write.parquet.row-group-limit' = '10', 'read.split.target-size' = '400');
INSERT INTO db.t SELECT CAST(id AS INT), 'a' FROM range(0, 200, 1, 1);

DELETE FROM db.t WHERE id = 150;
--> result: rows_deleted=1
--> rows: SELECT count(*), sum(id), max(id) FROM db.t
--| 199 | 19750 | 199

UPDATE db.t SET dep = 'b' WHERE id IN (5, 55, 199);
--> rows: SELECT id FROM db.t WHERE dep = 'b'
--| 5
--| 55
--| 199
--> rows: SELECT count(*), sum(id) FROM db.t
--| 199 | 19750
