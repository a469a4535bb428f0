"""Statements to run on a cluster and locally, and the table's state after each. Also a program that runs them locally.

python -m tests.cluster.statements FOLDER ROWS KIND...    prints the state after each, as JSON, by kind of table
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import dml
from dml.options import Command
from dml.result import Result
from dml.session import Session

__all__ = ["KINDS", "Left", "kind_name", "left_by_statements", "statements"]

KINDS = ((2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read"))
COLUMNS = "id BIGINT, part INT, v BIGINT, s STRING"
SUMS = "count(*), sum(id), sum(v), sum(part), bit_xor(xxhash64(id, part, v, s))"

Left = tuple[str, list[int], list[int]]
"""A statement, sums over the table after it, and the counts that it reported."""


def kind_name(version: int, mode: str) -> str:
    """Return a short name for a kind of table."""
    return f"v{version}-{mode}"


def statements(rows: int) -> Iterator[str]:
    """Yield statements on `{t}`, and on `{s}`, a table whose rows are the source of a MERGE.

    Args:
        rows: The number of rows that the first statement inserts.
    """
    yield f"""INSERT INTO {{t}} SELECT id, CAST(id % 8 AS INT), id * 7919 % 1000, concat('s', id % 1000)
        FROM range({rows})"""
    yield "UPDATE {t} SET v = v + 1 WHERE id % 10 = 3"
    yield "UPDATE {t} SET s = upper(s) WHERE part = 2 AND id % 3 = 0"
    yield "DELETE FROM {t} WHERE id % 17 = 0"
    yield f"""MERGE INTO {{t}} t
        USING (SELECT id * 11 AS id FROM range(10) UNION ALL SELECT {rows} + id FROM range(3)) s
        ON t.id = s.id WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET v = -1
        WHEN NOT MATCHED THEN INSERT (id, part, v, s) VALUES (s.id, 9, 0, 'small')"""
    yield f"""MERGE INTO {{t}} t USING (SELECT id, id % 100 AS v, concat('large ', id) AS s
            FROM range({rows // 2}, {rows + rows // 2})) s
        ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v, s = s.s
        WHEN NOT MATCHED THEN INSERT (id, part, v, s) VALUES (s.id, CAST(s.id % 8 AS INT), s.v, s.s)"""
    yield f"INSERT INTO {{s}} SELECT id, CAST(id % 8 AS INT), id % 10, 'source' FROM range(0, {rows * 2}, 5)"
    yield """MERGE INTO {t} t USING (SELECT * FROM {s} WHERE part IN (1, 5)) s ON t.part = s.part AND t.id = s.id
        WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND t.part = 5 AND t.id % 7 = 0 THEN DELETE"""
    yield "DELETE FROM {t} WHERE id IN (SELECT id + 1 FROM {s} WHERE part = 3)"
    yield "INSERT OVERWRITE {t} SELECT id + 1000000000, part, v, s FROM {s} WHERE part = 7"


def left_by_statements(
    lake: Session, name: str, version: int, mode: str, rows: int, further: Mapping[str, str] = MappingProxyType({})
) -> list[Left]:
    """Run all statements on new tables of a kind, and verify the table after each.

    Args:
        lake: The session; it has the namespace `db`.
        name: The name of the table.
        version: The format version.
        mode: The mode of DELETE, UPDATE and MERGE.
        rows: The number of rows that the first statement inserts.
        further: More properties of the table.
    """
    tables = {"t": f"db.{name}", "s": f"db.{name}_source"}
    properties = {"format-version": version, **{f"write.{command}.mode": mode for command in Command}}
    for table, more in zip(tables.values(), (further, {}), strict=True):
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in {**properties, **more}.items())
        lake.sql(f"CREATE TABLE {table} ({COLUMNS}) PARTITIONED BY (part) TBLPROPERTIES ({listed})")
    left: list[Left] = []
    for text in statements(rows):
        result = lake.sql(text.format(**tables))
        assert isinstance(result, Result)
        counts = [result.rows_deleted, result.rows_updated, result.rows_inserted]
        (sums,) = lake.sql(f"SELECT {SUMS} FROM {tables['t']}").collect()
        found = lake.verify(tables["t"])
        assert found.ok, found
        left.append((text, list(sums), counts))
    return left


def main() -> None:
    """Run the statements in a local session."""
    folder, rows, kinds = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    settings = {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.local.dir": str(folder / "local")}
    settings["spark.sql.shuffle.partitions"] = "3"
    lake = dml.connect(str(folder / "lake"), progress=False, settings=settings)
    lake.sql("CREATE NAMESPACE db")
    outcomes = {
        kind_name(version, mode): left_by_statements(lake, f"t{number}", version, mode, rows)
        for number, (version, mode) in enumerate(KINDS)
        if kind_name(version, mode) in kinds
    }
    sys.stdout.write(json.dumps(outcomes))


if __name__ == "__main__":
    main()
