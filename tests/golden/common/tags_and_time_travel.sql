-- ids: C14
-- formats: 2
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);
ALTER TABLE db.t CREATE TAG monthly;

DELETE FROM db.t.tag_monthly WHERE id = 1;
--> error NotSupportedError not-supported: is a tag, not a branch

DELETE FROM db.t.branch_monthly WHERE id = 1;
--> error NotSupportedError not-supported: is a tag, not a branch

MERGE INTO db.t VERSION AS OF 'monthly' AS t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE;
--> error SqlError syntax: time travel

UPDATE db.t TIMESTAMP AS OF '2030-01-01' SET salary = 0;
--> error SqlError syntax: time travel
