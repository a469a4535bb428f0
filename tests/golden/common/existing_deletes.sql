-- ids: C23, C37, D15
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING);
INSERT INTO db.t SELECT CAST(id AS INT), 'a' FROM range(0, 10, 1, 1);

DELETE FROM db.t WHERE id IN (0, 3);
--> result: rows_deleted=2
--> snapshot [merge-on-read]: operation=delete, added-position-deletes=2

-- Positions are counted from the file's start, deleted rows included.
DELETE FROM db.t WHERE id IN (0, 3, 4, 9);
--> result: rows_deleted=2
--> snapshot [merge-on-read]: operation=delete, added-position-deletes=4, removed-position-deletes=2
--> snapshot [merge-on-read v2]: added-position-delete-files=1, removed-position-delete-files=1
--> snapshot [merge-on-read v3]: added-dvs=1, removed-dvs=1, added-position-delete-files=absent

-- What was deleted is neither updated nor deleted again.
UPDATE db.t SET dep = 'b' WHERE id < 5;
--> result: rows_updated=2
--> rows
--| 1 | b
--| 2 | b
--| 5 | a
--| 6 | a
--| 7 | a
--| 8 | a

DELETE FROM db.t WHERE id IN (0, 3, 4, 9);
--> unchanged

MERGE INTO db.t USING (SELECT id FROM VALUES (0), (1), (4) AS v(id)) s ON t.id = s.id
WHEN MATCHED THEN UPDATE SET dep = 'c' WHEN NOT MATCHED THEN INSERT (id, dep) VALUES (s.id, 'new');
--> result: rows_updated=1, rows_inserted=2
--> rows
--| 0 | new
--| 1 | c
--| 2 | b
--| 4 | new
--| 5 | a
--| 6 | a
--| 7 | a
--| 8 | a
