-- ids: M27
-- formats: 2, 3

CREATE TABLE db.t (id INT, day TIMESTAMP, name STRING) PARTITIONED BY (days(day), bucket(4, id), truncate(2, name));
INSERT INTO db.t VALUES (1, TIMESTAMP '2024-01-01 01:00:00', 'alpha'), (2, TIMESTAMP '2024-01-01 23:00:00', 'alto'), (3, TIMESTAMP '2024-01-02 00:00:00', 'beta');

MERGE INTO db.t USING (SELECT * FROM VALUES (1, 'b'), (3, 'c'), (4, 'd') AS v(id, n)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET day = day + INTERVAL 1 DAY, name = concat(n, name)
WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, n);
--> rows
--| 1 | 2024-01-02 01:00:00 | balpha
--| 2 | 2024-01-01 23:00:00 | alto
--| 3 | 2024-01-03 00:00:00 | cbeta
--| 4 | NULL | d

ALTER TABLE db.t SET TBLPROPERTIES ('write.merge.distribution-mode' = 'none');

MERGE INTO db.t USING (SELECT * FROM VALUES (1), (2), (5), (6) AS v(id)) s ON t.id = s.id AND t.day >= TIMESTAMP '2024-01-01'
WHEN MATCHED THEN UPDATE SET name = 'none' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id);
--> rows
--| 1 | 2024-01-02 01:00:00 | none
--| 2 | 2024-01-01 23:00:00 | none
--| 3 | 2024-01-03 00:00:00 | cbeta
--| 4 | NULL | d
--| 5 | NULL | NULL
--| 6 | NULL | NULL

ALTER TABLE db.t SET TBLPROPERTIES ('write.merge.distribution-mode' = 'range');
ALTER TABLE db.t WRITE ORDERED BY name, id;

MERGE INTO db.t USING (SELECT * FROM VALUES (2), (3), (6), (7) AS v(id)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET name = 'range', day = TIMESTAMP '2030-12-31 12:00:00' WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)
WHEN NOT MATCHED BY SOURCE AND t.id >= 4 THEN DELETE;
--> rows
--| 1 | 2024-01-02 01:00:00 | none
--| 2 | 2030-12-31 12:00:00 | range
--| 3 | 2030-12-31 12:00:00 | range
--| 6 | 2030-12-31 12:00:00 | range
--| 7 | NULL | NULL
