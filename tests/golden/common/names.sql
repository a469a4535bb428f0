-- ids: C9, C10
-- partitioned by: dep
-- formats: 2

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

UPDATE db.t AS x SET x.salary = x.salary * 2, `dep` = 'HR' WHERE x.`id` = 1;
--> rows
--| 1 | HR | 200
--| 2 | hr | 200
--| 3 | it | 300
--| 4 | it | NULL
--| 5 | NULL | 500

DELETE FROM db.t x WHERE t.id = 1;
--> error AnalysisError unresolved-column: t.id

UPDATE db.t x SET t.salary = 1;
--> error AnalysisError unresolved-column: t.salary

DELETE FROM db.t WHERE db.t.iD = 5 OR T.SALARY IS NULL;
--> rows
--| 1 | HR | 200
--| 2 | hr | 200
--| 3 | it | 300

UPDATE db.t SET Salary = SALARY + 1 WHERE ID = 3;
--> rows
--| 1 | HR | 200
--| 2 | hr | 200
--| 3 | it | 301

SET spark.sql.caseSensitive = true;

UPDATE db.t SET Salary = 0;
--> error AnalysisError unresolved-column: Salary

DELETE FROM db.t WHERE ID = 3;
--> error AnalysisError unresolved-column: ID

DELETE FROM db.t WHERE id = 3;
--> rows: SELECT id, dep, salary FROM db.t
--| 1 | HR | 200
--| 2 | hr | 200

-- A quoted name is that name, whatever is in it: no star.
SET spark.sql.caseSensitive = false;
CREATE TABLE lake.db.signs (id INT, `x*{y}` INT);
INSERT INTO db.signs VALUES (1, 1), (2, 2), (3, 3);
UPDATE db.signs SET `x*{y}` = `x*{y}` * 10 WHERE `x*{y}` + 0 > 1;
DELETE FROM db.signs WHERE `x*{y}` + id = 22;
MERGE INTO db.signs t USING (SELECT 3 AS id, 7 AS `*`) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET `x*{y}` = s.`*`;
--> rows: SELECT * FROM db.signs
--| 1 | 1
--| 3 | 7
