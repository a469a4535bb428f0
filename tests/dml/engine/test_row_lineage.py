"""Row ids and sequence numbers of version 3, as statements leave them."""

import pyarrow.parquet as pq
import pytest

from tests.lake import COMMANDS, Lake

pytestmark = pytest.mark.spark

MODES = pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
MERGE = """
MERGE INTO {t} t USING (SELECT * FROM VALUES (1L), (2L), (5L), (9L) AS v(id)) s ON t.id = s.id
WHEN MATCHED AND t.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'updated'
WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, 'inserted')
"""


def filled(lake: Lake, version: int, mode: str) -> str:
    """A table of two data files: ids 0 to 3 and 4 to 7."""
    modes = {f"write.{command}.mode": mode for command in COMMANDS}
    name = lake.create("id BIGINT, s STRING", **{"format-version": str(version)}, **modes)
    for least in (0, 4):
        lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 'old' FROM range({least}, {least + 4})")
    return name


def lineage(lake: Lake, name: str) -> dict[int, tuple[int | None, int | None]]:
    """Row id and sequence number by id."""
    rows = lake.rows(f"SELECT id, _row_id, _last_updated_sequence_number FROM {name}")
    return {row[0]: (row[1], row[2]) for row in rows}


def stores_lineage(path: str) -> bool:
    return "_row_id" in pq.read_schema(path.removeprefix("file://")).names


@pytest.mark.proves("L1", "L2", "L3", "L9")
@MODES
def test_carried_and_updated_rows_keep_their_ids_and_new_rows_get_new_ones(lake: Lake, mode: str) -> None:
    """Two files, a row of each updated, one deleted, one new; then all of it once more, on files that store ids."""
    name = filled(lake, 3, mode)
    assert lineage(lake, name) == {i: (i, 1 + i // 4) for i in range(8)}
    inserted = {file.path for file in lake.data_files(name)}
    assert not any(map(stores_lineage, inserted))
    assert lake.table(name).metadata.next_row_id == 8
    lake.session.sql(MERGE.replace("{t}", name))
    new_files = [file for file in lake.data_files(name) if file.path not in inserted]
    assert new_files
    assert all(stores_lineage(file.path) for file in new_files)
    found = lineage(lake, name)
    (new_id, number) = found.pop(9)
    assert found == {i: (i, 3 if i in {1, 5} else 1 + i // 4) for i in range(8) if i != 2}
    # Ids are taken for all rows of new files, for those that keep theirs too.
    taken = sum(file.record_count for file in new_files)
    assert taken == (8 if mode == "copy-on-write" else 3)
    assert lake.table(name).metadata.next_row_id == 8 + taken
    assert new_id in range(8, 8 + taken)
    assert number == 3
    lake.session.sql(f"UPDATE {name} SET s = 'again' WHERE id IN (0, 1, 9)")
    found[9] = (new_id, number)
    assert lineage(lake, name) == {i: (row_id, 4 if i in {0, 1, 9} else n) for i, (row_id, n) in found.items()}


@pytest.mark.proves("L2", "L10")
@MODES
@pytest.mark.parametrize("statement", ["INSERT INTO {t} VALUES (8, 'new')", "UPDATE {t} SET s = 'new' WHERE id = 5"])
def test_rows_have_no_lineage_between_an_upgrade_and_the_next_commit(lake: Lake, mode: str, statement: str) -> None:
    name = filled(lake, 2, mode)
    lake.session.sql(f"DELETE FROM {name} WHERE id = 6")
    lake.session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version' = '3')")
    for nothing in ("DELETE FROM {t} WHERE id = -1", "UPDATE {t} SET s = 'x' WHERE s = 'missing'"):
        assert not lake.session.sql(nothing.replace("{t}", name)).changed
    assert set(lineage(lake, name).values()) == {(None, None)}
    lake.session.sql(statement.replace("{t}", name))
    found = lineage(lake, name)
    ids = [row_id for row_id, _ in found.values()]
    assert None not in ids
    assert len(set(ids)) == len(found)
    assert found[0][1] == 1
    changed = 8 if 8 in found else 5
    assert found[changed][1] == lake.table(name).metadata.last_sequence_number
