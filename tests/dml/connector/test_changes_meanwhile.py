"""Another writer changes a table's columns, or makes it anew, between the moments of a write or of a DataFrame."""

import itertools
import re
from operator import attrgetter

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.functions import col, expr, lit

from dml.commit import publish
from dml.errors import CommitConflictError, DmlError
from tests.marks import by_night

pytestmark = pytest.mark.spark

COLUMNS = "id bigint, k int, v int"
ROWS = "VALUES (1, 1, 10), (2, 2, 20)"
NEW = "SELECT 3L AS id, 2 AS k, 30 AS v"
BEFORE, AFTER = [(1, 1, 10), (2, 2, 20)], (3, 2, 30)

WRITES = {
    "append": [*BEFORE, AFTER],
    "overwrite": [AFTER],
    "overwritePartitions": [BEFORE[0], AFTER],
    "_jwriter.overwritePartitions": [BEFORE[0], AFTER],
    "insertInto": [*BEFORE, AFTER],
    "mergeInto": [BEFORE[0], AFTER],
    "UPDATE": [BEFORE[0], (2, 2, 30)],
}
"""Ways to write, and what each leaves of the two rows before it; the last but one is Spark's own job."""

CHANGES = {
    "added": ("ADD COLUMN w int FIRST", ["w", "id", "k", "v"], lambda row: (None, *row)),
    "dropped": ("DROP COLUMN v", ["id", "k"], lambda row: row[:2]),
    "renamed": ("RENAME COLUMN v TO z", ["id", "k", "z"], lambda row: row),
    "widened": ("ALTER COLUMN v TYPE bigint", ["id", "k", "v"], lambda row: row),
    "anew": ("DROP COLUMN v; ADD COLUMN v int", ["id", "k", "v"], lambda row: (*row[:2], None)),
    "exchanged": (
        "RENAME COLUMN id TO t; RENAME COLUMN v TO id; RENAME COLUMN t TO v",
        ["v", "k", "id"],
        lambda row: row,
    ),
    "partitioned": ("ADD PARTITION FIELD bucket(2, id)", ["id", "k", "v"], lambda row: row),
}
"""Changes of the table, its columns afterwards, and what becomes of a row that was written for those before."""

OTHER_COLUMNS = {"dropped", "renamed", "widened", "exchanged"}
"""Changes after which the table has not the columns of before, by name and type."""

ALWAYS = {("append", "exchanged"), ("_jwriter.overwritePartitions", "anew")}


def filled(lake):
    name = lake.create(COLUMNS, "PARTITIONED BY (k)")
    lake.session.sql(f"INSERT INTO {name} {ROWS}")
    return name


def change(lake, name, clauses):
    for clause in clauses.split(";"):
        lake.session.sql(f"ALTER TABLE {name} {clause}")


def make_anew(lake, name):
    lake.session.sql(f"DROP TABLE {name}")
    lake.session.sql(f"CREATE TABLE {name} ({COLUMNS}) PARTITIONED BY (k)")
    lake.session.sql(f"INSERT INTO {name} VALUES (9, 2, 90)")


def write(way, name, spark):
    rows = spark.sql(NEW)
    match way:
        case "UPDATE":
            spark.sql(f"UPDATE lake.{name} SET v = 30 WHERE k = 2")
        case "mergeInto":
            merge = rows.alias("s").mergeInto(f"lake.{name}", expr(f"s.k = {name[3:]}.k"))
            merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()
        case "insertInto":
            rows.write.insertInto(f"lake.{name}")
        case _:
            attrgetter(way)(rows.writeTo(f"lake.{name}"))(*([lit(True)] if way == "overwrite" else []))


REFUSED = "refused"
"""What is said where a DataFrame cannot be read any more."""


def outcome(frame):
    """The rows of a DataFrame, or that it is said what became of its table or column."""
    try:
        return sorted(map(tuple, frame.collect()), key=repr)
    except (AnalysisException, DmlError) as error:
        return REFUSED if re.search("INCOMPATIBLE|recreated", str(error)) else str(error)


def before_the_commit(monkeypatch, action):
    """What somebody else does when the rows are written, and their commit is made."""
    real = publish.commit_table

    def commit_table(*given):
        monkeypatch.setattr(publish, "commit_table", real)
        action()
        return real(*given)

    monkeypatch.setattr(publish, "commit_table", commit_table)


@pytest.mark.parametrize(
    ("way", "what"), by_night(tuple(itertools.product(WRITES, CHANGES)), lambda cell: cell in ALWAYS)
)
def test_columns_change_before_the_commit_of_a_write(lake, spark, monkeypatch, way, what):
    """Its rows are found by the ids of their columns, whatever these are called by then; by PyIceberg too."""
    name = filled(lake)
    clauses, columns, kept = CHANGES[what]
    before_the_commit(monkeypatch, lambda: change(lake, name, clauses))
    write(way, name, spark)
    expected = sorted(map(kept, WRITES[way]), key=repr)
    found = spark.table(f"lake.{name}")
    assert found.columns == columns
    assert sorted(map(tuple, found.collect()), key=repr) == expected
    assert sorted((tuple(row.values()) for row in lake.table(name).scan().to_arrow().to_pylist()), key=repr) == expected


@pytest.mark.parametrize("way", by_night(tuple(WRITES), lambda way: way == "overwritePartitions"))
def test_a_table_is_made_anew_before_the_commit_of_a_write(lake, spark, monkeypatch, way):
    """It is another table: the write fails, and leaves no file beside those of the new one."""
    name = filled(lake)
    states = []

    def somebody_else():
        make_anew(lake, name)
        states.append(lake.state(name))

    before_the_commit(monkeypatch, somebody_else)
    with pytest.raises(CommitConflictError, match="was dropped and recreated since the statement read it"):
        write(way, name, spark)
    assert lake.rows(name) == [(9, 2, 90)]
    assert lake.table(name).metadata_location == states[0][0]
    assert lake.folder(name).exists()


@pytest.mark.parametrize("what", by_night(tuple(CHANGES), lambda what: what == "anew"))
def test_columns_change_under_a_dataframe(lake, spark, what):
    """`spark.table` reads the columns of its names as they are now, or is refused; a fixed state has its rows."""
    name = filled(lake)
    clauses, columns, kept = CHANGES[what]
    following, fixed = spark.table(f"lake.{name}"), lake.session.table(name)
    statement = spark.sql(f"SELECT id, k, v FROM lake.{name}")
    change(lake, name, clauses)
    for frame in (fixed, statement):
        assert sorted(map(tuple, frame.collect())) == BEFORE
    places = [columns.index(column) for column in ("id", "k", "v") if column in columns]
    expected = sorted((tuple(kept(row)[place] for place in places) for row in BEFORE), key=repr)
    assert outcome(following) == (REFUSED if what in OTHER_COLUMNS else expected)


@pytest.mark.parametrize("kind", by_night(("table", "filter", "view", "cache"), lambda _: False))
def test_a_table_is_made_anew_under_a_dataframe(lake, spark, kind):
    """What follows the table has the rows of the new one, or says what became of it; never those of the old one."""
    name = filled(lake)
    following = spark.table(f"lake.{name}")
    if kind == "filter":
        following = following.where("k = 2").select("id")
    if kind == "view":
        following.createOrReplaceTempView("following")
        following = spark.sql("SELECT * FROM following")
    if kind == "cache":
        following = following.cache()
        assert following.count() == 2
    fixed = lake.session.table(name)
    make_anew(lake, name)
    if kind == "cache":
        following = following.where(
            "id > 0"
        )  # Spark keeps the plan of a DataFrame that it has cached, as of one that ran
    assert outcome(following) in ([(9,)], [(9, 2, 90)], REFUSED)
    spark.catalog.clearCache()
    assert outcome(fixed) in (BEFORE, REFUSED)


@pytest.mark.parametrize("clauses", by_night(("DROP COLUMN v", "RENAME COLUMN v TO z"), lambda _: False))
def test_columns_change_under_what_is_cached(lake, spark, clauses):
    """Rows of before the next commit are not shown after it as if they were the table's."""
    name = filled(lake)
    cached = spark.table(f"lake.{name}").cache()
    try:
        assert cached.count() == 2
        change(lake, name, clauses)
        lake.session.sql(f"DELETE FROM {name} WHERE id = 1")
        assert outcome(cached.where("id > 0")) == REFUSED
        assert spark.table(f"lake.{name}").count() == 1
    finally:
        spark.catalog.clearCache()


OVERWRITES = {
    "overwrite": lambda spark, name, rows: rows.writeTo(name).overwrite(lit(True)),
    "overwrite of a condition": lambda spark, name, rows: rows.writeTo(name).overwrite(col("k") == 2),
    "overwritePartitions": lambda spark, name, rows: rows.writeTo(name).overwritePartitions(),
    "Spark's job": lambda spark, name, rows: rows.writeTo(name)._jwriter.overwritePartitions(),
    "insertInto": lambda spark, name, rows: rows.write.insertInto(name, overwrite=True),
    "saveAsTable": lambda spark, name, rows: rows.write.mode("overwrite").format("iceberg").saveAsTable(name),
    "save": lambda spark, name, rows: rows.write.mode("overwrite").format("iceberg").save(name),
    "createOrReplace": lambda spark, name, rows: rows.writeTo(name).using("iceberg").createOrReplace(),
    "statement": lambda spark, name, rows: spark.sql(
        f"INSERT OVERWRITE {name} SELECT id, k, v + 1 FROM {name} WHERE k > 1"
    ),
}
OF_SOME = {"overwrite of a condition", "overwritePartitions", "Spark's job"}


@pytest.mark.parametrize("deleted", by_night((False, True), lambda deleted: deleted))
@pytest.mark.parametrize(
    "way", by_night(tuple(OVERWRITES), lambda way: way in {"overwrite of a condition", "Spark's job"})
)
def test_a_table_is_overwritten_by_its_own_rows(lake, spark, way, deleted):
    """They are read as the table was, to the last, with its deletes."""
    name = lake.create(COLUMNS, "PARTITIONED BY (k)", **{"write.delete.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, id % 3, id FROM range(30)")
    if deleted:
        lake.session.sql(f"DELETE FROM {name} WHERE id IN (2, 4)")
    before = lake.rows(name)
    rows = spark.table(f"lake.{name}").where("k > 1").withColumn("v", col("v") + 1)
    OVERWRITES[way](spark, f"lake.{name}", rows)
    others = [row for row in before if row[1] != 2] if way in OF_SOME else []
    assert lake.rows(name) == sorted([*others, *((i, k, v + 1) for i, k, v in before if k == 2)], key=repr)
