-- ids: C7, C8, C26
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

DELETE FROM db.t WHERE rand() > 0.5;
--> error AnalysisError invalid-condition: The condition calls rand: a row-level

UPDATE db.t SET salary = 0 WHERE id > rand() * 10;
--> error AnalysisError invalid-condition: deterministic

DELETE FROM db.t WHERE max(salary) = 500;
--> error AnalysisError invalid-condition: aggregate

UPDATE db.t SET salary = 0 WHERE id = count(*);
--> error AnalysisError invalid-condition: aggregate

DELETE FROM db.t WHERE _pos = 0;
--> error AnalysisError invalid-condition: _pos

UPDATE db.t SET _file = 'x' WHERE id = 1;
--> error AnalysisError unresolved-column: _file

DELETE FROM db.t WHERE row_number() OVER (ORDER BY id) = 1;
--> error AnalysisError invalid-condition: Window functions are not allowed

DELETE FROM db.t WHERE explode(array(1)) = 1;
--> error AnalysisError invalid-condition: generator
