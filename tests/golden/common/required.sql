-- ids: C31, C33, U16
-- partitioned by: dep

CREATE TABLE db.t (id INT NOT NULL, dep STRING, s STRUCT<a: INT NOT NULL, b: INT>);
INSERT INTO db.t VALUES (1, 'hr', named_struct('a', 1, 'b', 1)), (2, NULL, NULL);

UPDATE db.t SET id = NULL WHERE dep = 'hr';
--> error DataError not-null-violation: id

UPDATE db.t SET id = CASE WHEN id = 1 THEN 10 END;
--> error DataError not-null-violation: id

UPDATE db.t SET s.a = NULL WHERE id = 1;
--> error DataError not-null-violation: s.a

INSERT INTO db.t SELECT CASE WHEN x > 1 THEN x END, 'it', NULL FROM VALUES (1), (2) AS v(x);
--> error DataError not-null-violation: id

MERGE INTO db.t USING (SELECT CAST(NULL AS INT) AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
--> error DataError not-null-violation: id

-- An expression that could be NULL may be used where it is not.
UPDATE db.t SET id = CASE WHEN id = 1 THEN 10 END, s.a = 5 WHERE id = 1;
--> rows
--| 2 | NULL | NULL
--| 10 | hr | {a: 5, b: 1}
