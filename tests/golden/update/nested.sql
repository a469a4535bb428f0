-- ids: U4, U6
-- partitioned by: id

CREATE TABLE db.t (id INT, s STRUCT<c1: INT, c2: STRUCT<a: ARRAY<INT>, m: MAP<STRING, STRING>>>);
INSERT INTO db.t VALUES (1, named_struct('c1', 1, 'c2', named_struct('a', array(1, 2), 'm', map('k', 'v')))), (2, NULL);

UPDATE db.t SET s.c1 = -1, s.c2.m = map('k', NULL) WHERE id = 1;
--> rows
--| 1 | {c1: -1, c2: {a: [1, 2], m: {k -> NULL}}}
--| 2 | NULL

-- A struct that was NULL is made.
UPDATE db.t SET s.c2.a = array(id, NULL) WHERE id = 2;
--> rows
--| 1 | {c1: -1, c2: {a: [1, 2], m: {k -> NULL}}}
--| 2 | {c1: NULL, c2: {a: [2, NULL], m: NULL}}

UPDATE db.t AS x SET s = NULL, x.id = x.s.c2.a[0] WHERE x.s.c1 IS NULL;
--> rows
--| 1 | {c1: -1, c2: {a: [1, 2], m: {k -> NULL}}}
--| 2 | NULL

UPDATE db.t SET s.c2 = NULL, s.c1 = NULL;
--> rows
--| 1 | {c1: NULL, c2: NULL}
--| 2 | {c1: NULL, c2: NULL}
