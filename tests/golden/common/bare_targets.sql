-- ids: C25, D24
-- formats: 2
-- modes: copy-on-write
-- doors: lake.sql

-- Names without a catalog that name no table of ours: `spark.sql` leaves them to Spark.
CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
CREATE OR REPLACE TEMPORARY VIEW numbers AS SELECT 1 AS id;

DELETE FROM numbers WHERE id = 1;
--> error NotSupportedError not-supported: does not support DELETE

UPDATE numbers SET id = 2;
--> error NotSupportedError not-supported: does not support UPDATE

MERGE INTO numbers t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE;
--> error NotSupportedError not-supported: does not support MERGE

DELETE FROM db.nothing WHERE id = 1;
--> error NotFoundError not-found: db.nothing
