-- ids: D6, U11
-- partitioned by: dep
-- formats: 2, 3

CREATE TABLE db.t (id INT, dep STRING);

DELETE FROM db.t WHERE id = 1;
--> unchanged

DELETE FROM db.t;
--> unchanged

UPDATE db.t SET id = 1;
--> unchanged
--> rows: SELECT * FROM db.t
