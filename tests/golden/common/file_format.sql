-- ids: C21
-- formats: 2

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t SET TBLPROPERTIES ('write.format.default' = 'orc', 'write.delete.format.default' = 'parquet');

-- What is written anew is of the table's format, beside files of another.
UPDATE db.t SET salary = 0 WHERE id = 1;
DELETE FROM db.t WHERE id = 4;
INSERT INTO db.t VALUES (6, 'hr', 600);
UPDATE db.t SET salary = salary + 1 WHERE id IN (1, 6);
--> rows: SELECT id, salary FROM db.t
--| 1 | 1
--| 2 | 200
--| 3 | 300
--| 5 | 500
--| 6 | 601
