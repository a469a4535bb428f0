-- ids: I3
-- partitioned by: dep
-- modes: copy-on-write

CREATE TABLE db.t (id INT, dep STRING, salary INT);
INSERT INTO db.t VALUES (1, 'hr', 100), (2, 'hr', 200), (3, 'it', 300), (4, 'it', NULL), (5, NULL, 500);

INSERT INTO db.t SELECT * FROM db.t WHERE id > 100;
--> unchanged
--> result: rows_inserted=0
