-- ids: C21
-- formats: 2

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t SET TBLPROPERTIES ('write.format.default' = 'orc');

-- New files are Parquet files: a table that asks for others is told so before anything is written.
UPDATE db.t SET salary = 0 WHERE id = 1;
--> error NotSupportedError not-supported: Parquet
