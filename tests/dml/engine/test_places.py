# ruff: noqa: E501 - SQL reads best on one line
"""Errors that Spark finds point into the statement as it was written, and say what could have been meant."""

import pytest

from dml.errors import DmlError
from tests.lake import Lake

pytestmark = pytest.mark.spark

M = "MERGE INTO {t} t USING s ON "  # and then nothing that would bring the source's keys to the target's scan
WRONG = [
    # names
    ("DELETE FROM {t} WHERE\n  ^nme^ = 'a' AND id = 1", "unresolved-column", "Did you mean 'name'?"),
    ("DELETE FROM {t} WHERE ^uper^(name) = 'A'", "unresolved-function", "'upper'"),
    ("DELETE FROM {t} WHERE id IN (SELECT id FROM ^db.nowhere^)", "not-found", "There "),
    ("MERGE INTO {t} t USING ^ss^ ON t.id = ss.id WHEN MATCHED THEN DELETE", "not-found", "Did you mean 's'?"),
    ("INSERT INTO {t} SELECT * FROM ^nowhere.t^", "not-found", "no table in the namespace 'nowhere'"),
    ("SELECT * FROM ^nolake.db.o^", "not-found", "There is no catalog 'nolake'. Did you mean 'lake'?"),
    ("SELECT * FROM ^{t}.snapshot^", "not-found", "Did you mean 'snapshots'?"),
    ("EXPLAIN DELETE FROM {t} WHERE ^uper^(name) = 'a'", "unresolved-function", "'upper'"),
    ("CREATE OR REPLACE TEMP VIEW v AS SELECT ^uper^(name) FROM {t}", "unresolved-function", "'upper'"),
    ("INSERT INTO {t} REPLACE WHERE id = 1 AND ^nme^ = 'a' SELECT 1, 'a'", "unresolved-column", "Did you mean 'name'?"),
    ("SELECT t.id FROM {t} t JOIN s USING (^nme^)", "unresolved-column", "Did you mean 'name'?"),
    ("SELECT * FROM ^{t} TIMESTAMP AS OF id^", "unresolved-column", "takes a constant time"),
    # values
    ("SELECT * FROM ^{t} TIMESTAMP AS OF 'soon'^", "invalid-value", "takes a constant time"),
    ("SELECT * FROM ^{t} TIMESTAMP AS OF NULL^", "invalid-value", "NULL is not a time"),
    ("UPDATE {t} SET name = ^(SELECT name, id FROM s)^", "analysis", "must return only one column"),
    # procedures
    ("CALL ^verify^('{t}')", "not-supported", "Did you mean 'system.verify'?"),
    ("CALL ^lke.system.verify^('{t}')", "not-supported", "There is no catalog 'lke'. Did you mean 'lake'?"),
    # types
    ("DELETE FROM {t} WHERE ^id + 1^", "type-mismatch", "is not a boolean"),
    ("SELECT * FROM {t} WHERE ^id^", "type-mismatch", "is not a boolean"),
    (M + "^t.id^ WHEN MATCHED THEN DELETE", "type-mismatch", "is not a boolean"),
    (M + "t.id + 0 = s.id WHEN MATCHED AND t.id = 1 THEN DELETE WHEN MATCHED AND ^s.id^ THEN DELETE", "type-mismatch", "is not a boolean"),
    (M + "t.id + 0 = s.id WHEN MATCHED THEN UPDATE SET id = ^s.name^", "type-mismatch", "cannot be stored in the column 'id'"),
    ("UPDATE {t} SET name = 'a', id = ^'abc'^", "type-mismatch", "cannot be stored"),
    ("INSERT INTO {t} (^id^) VALUES ('abc')", "type-mismatch", "cannot be stored"),
    ("DELETE FROM {t} WHERE id = 1 AND ^array(id) > 3^", "type-mismatch", "incompatible types"),
    ("UPDATE {t} SET id = 1 WHERE ^upper(name, id)^ = 'A'", "analysis", "takes 1 arguments, not 2"),
    ("SELECT name FROM s WHERE id = 1 AND ^substring(name)^ = ''", "analysis", "takes 2 or 3 arguments, not 1"),
    # syntax that only Spark knows
    ("DELETE FROM {t} WHERE id = 1 OR ^OR^ id = 2", "syntax", "a condition after 'OR'"),
    ("DELETE FROM {t} WHERE id IN (1,^)^", "syntax", "another item after ','"),
    ("INSERT INTO {t} VALUES (1, 'x') ^(^2, 'y')", "syntax", "an operator or ','"),
    ("SELECT * ^FORM^ {t}", "syntax", "Did you mean FROM?"),
    (M + "t.id + 0 = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id) WHEN MATCHED AND t.id = ^=^ 1 THEN DELETE", "syntax", "an expression after '='"),
    ("ALTER TABLE {t} ^RENAM^ TO db.z", "syntax", "Did you mean RENAME?"),
    ("^SELCT^ * FROM {t}", "syntax", "Did you mean SELECT?"),
]  # fmt: skip


def test_every_mistake_is_underlined_and_changes_nothing(lake: Lake) -> None:
    """And nothing of what was generated for it is shown."""
    name = lake.create("id BIGINT, name STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    source = lake.session.spark.createDataFrame([(1, "x"), (1, "y")], "id BIGINT, name STRING")
    source.createOrReplaceTempView("s")
    before, wrong = lake.state(name), []
    for template, kind, words in WRONG:
        marked = template.replace("{t}", name)
        sql = marked.replace("^", "")
        with pytest.raises(DmlError) as caught:
            lake.session.sql(sql)
        error = caught.value
        shown = "" if error.position is None else sql[error.position : error.position + error.length]
        placed = error.position == marked.index("^") and f"^{shown}^" in marked
        clean = "rowdelta" not in str(error) and "_pyspark" not in str(error)
        if not (placed and clean and error.kind == kind and words in str(error)):
            wrong.append(f"{marked}: {error.kind} {error}")
    lake.session.spark.catalog.dropTempView("s")
    assert wrong == []
    assert lake.state(name) == before
