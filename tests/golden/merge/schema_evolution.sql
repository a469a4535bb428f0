-- ids: M28
-- partitioned by: dep

CREATE TABLE db.t (id INT, dep STRING, s STRUCT<a: INT>);
INSERT INTO db.t VALUES (1, 'hr', named_struct('a', 1)), (2, 'it', NULL);

-- Without the words the columns that the target lacks are left out.
MERGE INTO db.t USING (SELECT 1 AS id, 'hr' AS dep, named_struct('a', 10) AS s, 'x' AS note) src ON t.id = src.id WHEN MATCHED THEN UPDATE SET *;
--> rows
--| 1 | hr | {a: 10}
--| 2 | it | NULL

MERGE WITH SCHEMA EVOLUTION INTO db.t
USING (SELECT * FROM VALUES (1, named_struct('a', 11, 'b', 'n'), 'x'), (3000000000, named_struct('a', 12, 'b', 'm'), 'y') AS v(id, s, note)) src
ON t.id = src.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
--> rows
--| 1 | hr | {a: 11, b: n} | x
--| 2 | it | NULL | NULL
--| 3000000000 | NULL | {a: 12, b: m} | y

-- Structs inside arrays and maps evolve too: new fields, wider types.
ALTER TABLE db.t ADD COLUMNS l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<y: FLOAT>>, n ARRAY<INT>;
UPDATE db.t SET l = array(named_struct('x', 1)), m = map('k', named_struct('y', 0.5F)), n = array(7);

MERGE WITH SCHEMA EVOLUTION INTO db.t
USING (
    SELECT 1 AS id, array(named_struct('x', 5000000000, 'z', 'p')) AS l, map('j', named_struct('y', 1.5D, 'w', named_struct('q', 1))) AS m,
        array(6000000000) AS n
) src
ON t.id = src.id WHEN MATCHED THEN UPDATE SET *;
--> rows: SELECT id, l, m, n FROM db.t
--| 1 | [{x: 5000000000, z: p}] | {j -> {y: 1.5, w: {q: 1}}} | [6000000000]
--| 2 | [{x: 1, z: NULL}] | {k -> {y: 0.5, w: NULL}} | [7]
--| 3000000000 | [{x: 1, z: NULL}] | {k -> {y: 0.5, w: NULL}} | [7]

-- What cannot be stored is found before the schema changes, so nothing is added or widened.
MERGE WITH SCHEMA EVOLUTION INTO db.t USING (SELECT 1 AS id, true AS n, 'x' AS extra) src ON t.id = src.id WHEN MATCHED THEN UPDATE SET *;
--> error AnalysisError type-mismatch: 'n'

MERGE WITH SCHEMA EVOLUTION INTO db.t USING (SELECT 1 AS id, map(named_struct('a', 1), 1) AS extra, map(1, 1) AS m) src ON t.id = src.id AND nothing WHEN MATCHED THEN UPDATE SET *;
--> error AnalysisError unresolved-column: nothing

INSERT INTO db.t VALUES (9, 'hr', named_struct('a', 1, 'b', 'o'), 'z', array(named_struct('x', 1, 'z', 'r')), map(), array(1));
--> rows: SELECT * FROM db.t WHERE id = 9
--| 9 | hr | {a: 1, b: o} | z | [{x: 1, z: r}] | {} | [1]

-- Structs of the source may have fewer fields: updated rows keep theirs, inserted ones get NULL. Of a struct that is NULL
-- nothing is known, so what only the target has stays.
CREATE TABLE lake.db.n (id INT, s STRUCT<a: INT, b: STRUCT<x: INT, y: INT>>, l ARRAY<STRUCT<p: INT, q: INT>>, m MAP<STRING, STRUCT<p: INT, q: INT>>);
INSERT INTO db.n VALUES
    (1, named_struct('a', 1, 'b', named_struct('x', 1, 'y', 1)), array(named_struct('p', 1, 'q', 1)), map('k', named_struct('p', 1, 'q', 1))),
    (2, NULL, NULL, NULL),
    (3, named_struct('a', 3, 'b', named_struct('x', 3, 'y', 3)), NULL, NULL),
    (4, named_struct('a', 4, 'b', NULL), NULL, NULL);
MERGE WITH SCHEMA EVOLUTION INTO db.n
USING (
    SELECT id, IF(id IN (3, 6), NULL, named_struct('b', named_struct('x', 10 * id), 'z', 'new')) AS s, array(named_struct('q', id)) AS l,
        map('k', named_struct('p', id)) AS m
    FROM VALUES (1), (2), (3), (4), (5), (6) AS v(id)
) src
ON n.id = src.id WHEN MATCHED AND src.id < 5 THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *;
--> rows: SELECT id, s FROM db.n
--| 1 | {a: 1, b: {x: 10, y: 1}, z: new}
--| 2 | {a: NULL, b: {x: 20, y: NULL}, z: new}
--| 3 | {a: 3, b: {x: NULL, y: 3}, z: NULL}
--| 4 | {a: 4, b: {x: 40, y: NULL}, z: new}
--| 5 | {a: NULL, b: {x: 50, y: NULL}, z: new}
--| 6 | NULL
--> rows: SELECT id, l, m FROM db.n WHERE id < 2
--| 1 | [{p: NULL, q: 1}] | {k -> {p: 1, q: NULL}}

-- Not without the words.
MERGE INTO db.n USING (SELECT 1 AS id, named_struct('a', 1) AS s, array() AS l, map() AS m) src ON n.id = src.id WHEN MATCHED THEN UPDATE SET *;
--> error AnalysisError type-mismatch: 's' lacks 'b', 'z'
