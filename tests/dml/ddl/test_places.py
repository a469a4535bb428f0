"""Errors of statements on tables and namespaces point at the word that is wrong."""

from types import SimpleNamespace
from typing import cast

import pytest

from dml.engine.engine import Engine
from dml.engine.located import locate_error
from dml.errors import DmlError
from dml.sqlparse import parse

NO_SESSION = cast("Engine", SimpleNamespace(spark=None, registry=None))
WRONG = [
    "CREATE TABLE db.x (id bigint, b ^foo^)",
    "CREATE TABLE db.x (id bigint, b array<^strng^>)",
    "CREATE TABLE db.x (id bigint, b ^interval^)",
    "CREATE TABLE db.x (id bigint, ^id^ int)",
    "CREATE TABLE db.x (id bigint, ^_file string^)",
    "CREATE TABLE db.x (^id^ bigint DEFAULT 'a') TBLPROPERTIES ('format-version' = '3')",
    "CREATE TABLE db.x (id bigint) PARTITIONED BY (id, bucket(4, ^nope^))",
    "CREATE TABLE db.x (id bigint, d date) PARTITIONED BY (^days(id)^)",
    "CREATE TABLE db.x (d date) PARTITIONED BY (days(d), ^months(d)^)",
    "CREATE TABLE db.x (id bigint) TBLPROPERTIES (^'format-version'^ = '9')",
    "CREATE TABLE db.x (id bigint) TBLPROPERTIES ('a' = 'b', ^write.delete.mode^ = 'mor')",
    "CREATE TABLE ^db.t^ (id bigint)",
    "CREATE TABLE ^nodb^.t (id bigint)",
    "ALTER TABLE ^db.nope^ ADD COLUMN a int",
    "ALTER TABLE db.t ADD COLUMNS (a int, ^name^ int)",
    "ALTER TABLE db.t ADD COLUMN s.z ^foo^",
    "ALTER TABLE db.t ADD COLUMN z int AFTER ^nope^",
    "ALTER TABLE db.t ADD COLUMN ^z int NOT NULL^",
    "ALTER TABLE db.t DROP COLUMNS (id, ^nam^)",
    "ALTER TABLE db.t DROP COLUMN ^dep^",
    "ALTER TABLE db.t RENAME COLUMN ^nam^ TO id",
    "ALTER TABLE db.t RENAME COLUMN name TO ^id^",
    "ALTER TABLE db.t ALTER COLUMN id TYPE ^bignt^",
    "ALTER TABLE db.t ALTER COLUMN id TYPE ^int^",
    "ALTER TABLE db.t ALTER COLUMN ^id^ SET NOT NULL",
    "ALTER TABLE db.t ALTER COLUMN id AFTER ^nope^",
    "ALTER TABLE db.t ADD PARTITION FIELD ^dep^",
    "ALTER TABLE db.t DROP PARTITION FIELD ^nope^",
    "ALTER TABLE db.t REPLACE PARTITION FIELD dep WITH bucket(4, ^nope^)",
    "ALTER TABLE db.t WRITE ORDERED BY id, ^nope^",
    "ALTER TABLE db.t SET TBLPROPERTIES (^'format-version'^ = '1')",
    "ALTER TABLE db.t UNSET TBLPROPERTIES (^'format-version'^)",
    "ALTER TABLE db.t RENAME TO ^db.other^",
    "ALTER TABLE db.t RENAME TO ^nodb^.other",
    "ALTER TABLE db.t SET IDENTIFIER FIELDS ^id^, name",
    "ALTER TABLE db.t DROP IDENTIFIER FIELDS ^name^",
    "ALTER TABLE db.t CREATE TAG ^v1^",
    "ALTER TABLE db.t CREATE BRANCH b AS OF VERSION ^17^",
    "ALTER TABLE db.t REPLACE TAG ^nope^ RETAIN 1 DAYS",
    "ALTER TABLE db.t DROP BRANCH ^main^",
    "DROP TABLE ^db.nope^",
    "DROP NAMESPACE ^nodb^",
    "DROP NAMESPACE ^db^",
    "CREATE NAMESPACE ^db^",
    "DESCRIBE TABLE ^db.nope^",
    "SHOW TABLES IN ^nodb^",
    "SHOW CREATE TABLE ^db.nope^",
    "SHOW TBLPROPERTIES ^db.nope^",
    "SHOW COLUMNS IN ^nope^ IN db",
    "SHOW PARTITIONS ^db.nope^",
    "SHOW PARTITIONS db.t PARTITION (dep = 'a', ^nope = 1^)",
    "COMMENT ON TABLE ^db.nope^ IS 'x'",
    "COMMENT ON NAMESPACE ^nodb^ IS NULL",
    "COMMENT ON COLUMN ^db.nope^.id IS 'x'",
    "COMMENT ON COLUMN db.t.^nope^ IS NULL",
    "CREATE TABLE ^db.t^ LIKE db.other",
    "CREATE TABLE db.x LIKE ^db.nope^",
    "CREATE TABLE db.x LIKE db.t TBLPROPERTIES (^'format-version'^ = '9')",
]


def test_every_mistake_is_underlined(lake):
    lake.run("CREATE TABLE db.t (id bigint, name string, dep string, s struct<a: int>) PARTITIONED BY (dep)")
    lake.run("CREATE TABLE db.other (id bigint)")
    before = lake.table().metadata_location
    wrong = []
    for marked in WRONG:
        sql = marked.replace("^", "")
        statement = parse(sql)
        with pytest.raises(DmlError) as caught:
            lake.run(sql)
        error = locate_error(caught.value, statement, sql, NO_SESSION)
        shown = "" if error.position is None else sql[error.position : error.position + error.length]
        if error.position != marked.index("^") or f"^{shown}^" not in marked:
            wrong.append(f"{marked}: {error}")
    assert wrong == []
    assert lake.table().metadata_location == before
