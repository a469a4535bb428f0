"""Compactions that copy the row groups of files that Iceberg's Java library wrote. Without Spark's session."""

from pathlib import Path
from typing import Any

import pytest

from dml import limits
from dml.catalog import create_namespace, load
from dml.write.copied_row_groups import RowGroupCopier
from tests.dml.engine.rewrites import NAME, assert_sound, compact, in_process, rows
from tests.fixtures.java.tables import NAMES, lay_out

COPIED = {"position_deletes_of_files", "position_deletes_of_partitions"}
"""Tables with a new file of copied row groups. In the others, files differ in where they require values, or more."""


@pytest.mark.parametrize("name", NAMES)
def test_rows_stay(name: str, place_of_java_tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_process(monkeypatch)
    monkeypatch.setattr(limits, "MIN_COPIED_ROW_GROUP_BYTES", 1)
    copies, copy = [], RowGroupCopier.copy

    def note(self: RowGroupCopier, *arguments: Any, **given: Any) -> Any:
        copies.append(copy(self, *arguments, **given))
        return copies[-1]

    monkeypatch.setattr(RowGroupCopier, "copy", note)
    catalog = load("lake", str(tmp_path))
    create_namespace(catalog, NAME[:1])
    table = catalog.register_table(NAME, lay_out(name))
    before = rows(table)
    compact(table, {"min-input-files": 2, "delete-ratio-threshold": 1})
    assert rows(table) == before
    assert_sound(table)
    assert any(copies) == (name in COPIED)
