-- ids: C36, U2, M6
-- partitioned by: dep
-- formats: 3

CREATE TABLE db.t (id INT, dep STRING, n INT DEFAULT 7, v STRING);
INSERT INTO db.t VALUES (1, 'hr', DEFAULT, DEFAULT), (2, 'it', 0, 'x');

INSERT INTO db.t (id, dep) VALUES (3, 'hr');
--> rows
--| 1 | hr | 7 | NULL
--| 2 | it | 0 | x
--| 3 | hr | 7 | NULL

UPDATE db.t SET n = DEFAULT, v = DEFAULT WHERE id = 2;
--> rows
--| 1 | hr | 7 | NULL
--| 2 | it | 7 | NULL
--| 3 | hr | 7 | NULL

MERGE INTO db.t USING (SELECT * FROM VALUES (1), (4) AS v(id)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET n = -1 WHEN NOT MATCHED THEN INSERT (dep, id) VALUES ('new', s.id);
--> rows
--| 1 | hr | -1 | NULL
--| 2 | it | 7 | NULL
--| 3 | hr | 7 | NULL
--| 4 | new | 7 | NULL
