"""Manifest lists, manifests and Puffin files that Iceberg's Java library wrote say to us what they say to Java."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from pyiceberg.table.puffin import PuffinFile

from dml.deletes import deletion_vector
from dml.deletes.position_index import PositionDeleteIndex
from dml.manifests.read import entries_of, manifests_of
from dml.model.manifest import ContentFile, ManifestContent, ManifestEntry, ManifestFile
from tests.fixtures.java.tables import HERE, NAMES, expected, lay_out
from tests.fixtures.java.values import key_of, sorted_rows

METRICS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
OPTIONAL = ("sort_order_id", "referenced_data_file", "content_offset", "content_size_in_bytes")


WITH_ENTRIES = [name for name in NAMES if "entries" in expected(name)]  # Spark 3.5 cannot load the others
RANGES = json.loads((HERE / "vectors" / "ranges.json").read_text(encoding="utf-8"))


@pytest.fixture(params=WITH_ENTRIES)
def table(request: pytest.FixtureRequest, place_of_java_tables: Path) -> StaticTable:
    """A table as Java left it."""
    return StaticTable.from_metadata(lay_out(request.param))


def name_of(table: StaticTable) -> str:
    return table.location().rstrip("/").rpartition("/")[2]


def all_entries(table: StaticTable) -> Iterator[tuple[ManifestFile, ManifestEntry]]:
    for manifest in manifests_of(table.io, table.current_snapshot()):
        for entry in entries_of(manifest, table.io):
            yield manifest, entry


def plain(value: Any) -> Any:
    """A partition value, however it is typed: dates are days, and so on."""
    if isinstance(value, dict):
        ((kind, inner),) = value.items()
        return inner // 1000 if kind in {"timestamp", "instant"} else inner
    return value


def file_as_java_shows_it(file: ContentFile, table: StaticTable) -> dict[str, Any]:
    names = [part.name for part in table.specs()[file.spec_id].fields]
    shown: dict[str, Any] = {
        "content": int(file.content),
        "file_path": file.path,
        "file_format": file.file_format.upper(),
        "spec_id": file.spec_id,
        "partition": {name: value for name, value in zip(names, file.partition, strict=True) if value is not None},
        "record_count": file.record_count,
        "file_size_in_bytes": file.file_size_in_bytes,
        "split_offsets": list(file.split_offsets),
        "equality_ids": list(file.equality_ids),
    }
    for name in METRICS:
        pairs = sorted(getattr(file, name).items())
        shown[name] = [[number, value.hex() if isinstance(value, bytes) else value] for number, value in pairs]
    return shown | {name: getattr(file, name) for name in OPTIONAL}


def file_that_java_shows(file: dict[str, Any], of: StaticTable) -> dict[str, Any]:
    partition = (file.get("partition") or {"struct": {}})["struct"]
    shown: dict[str, Any] = {
        **{name: file[name] for name in ("content", "file_path", "file_format", "spec_id", "record_count")},
        "file_size_in_bytes": file["file_size_in_bytes"],
        "partition": {name: plain(value) for name, value in partition.items() if value is not None},
        "split_offsets": file["split_offsets"] or [],
        "equality_ids": file["equality_ids"] or [],
    }
    for name in METRICS:
        pairs = sorted(file[name]["map"]) if file[name] else []
        shown[name] = [[number, plain(value)] for number, value in pairs]
    return shown | {name: file[name] for name in OPTIONAL}


def test_manifest_lists(table: StaticTable) -> None:
    """Each line of the list, in Java's words."""
    found = []
    for manifest in manifests_of(table.io, table.current_snapshot()):
        counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
        of_data = manifest.content is ManifestContent.DATA
        row = {
            "content": int(manifest.content),
            "path": manifest.manifest_path,
            "length": manifest.manifest_length,
            "partition_spec_id": manifest.partition_spec_id,
            "added_snapshot_id": manifest.added_snapshot_id,
        }
        for kind, numbers in (("data", counts if of_data else (0, 0, 0)), ("delete", (0, 0, 0) if of_data else counts)):
            row |= dict(
                zip((f"{done}_{kind}_files_count" for done in ("added", "existing", "deleted")), numbers, strict=True)
            )
        found.append(row)
    assert sorted_rows(found) == sorted_rows(expected(name_of(table))["manifests"])


def test_manifests(table: StaticTable) -> None:
    """Each file with its status, the numbers that it inherits, its partition and its metrics."""
    found = []
    for _, entry in all_entries(table):
        row = {
            "status": int(entry.status),
            "snapshot_id": entry.snapshot_id,
            "sequence_number": entry.data_sequence_number,
            "file_sequence_number": entry.file_sequence_number,
        }
        found.append(row | file_as_java_shows_it(entry.data_file, table))
    javas = [
        {key: value for key, value in row.items() if key != "data_file"}
        | file_that_java_shows(row["data_file"]["struct"], table)
        for row in expected(name_of(table))["entries"]
    ]
    assert sorted(found, key=key_of) == sorted(javas, key=key_of)


def test_deletion_vectors(table: StaticTable) -> None:
    """The positions are Java's, and our bytes of the same positions are Java's too."""
    found = []
    for _, entry in all_entries(table):
        file = entry.data_file
        if not (entry.is_live and file.is_deletion_vector):
            continue
        content = Path(file.path.removeprefix("file:")).read_bytes()
        puffin = PuffinFile(content)
        (blob,) = (blob for blob in puffin.footer.blobs if blob.offset == file.content_offset)
        assert blob.properties["referenced-data-file"] == file.referenced_data_file
        assert (blob.type, blob.length) == ("deletion-vector-v1", file.content_size_in_bytes)
        payload = puffin.get_blob_payload(blob)
        index = deletion_vector.decode(payload, file=file.path, cardinality=file.record_count)
        assert deletion_vector.encode(index) == payload
        found += [(file.referenced_data_file, int(position)) for position in index.to_numpy()]
    vectors = {entry.data_file.path for _, entry in all_entries(table) if entry.data_file.is_deletion_vector}
    positions = expected(name_of(table)).get("positions")
    if positions is not None:  # Java lists none of a table that has equality deletes
        javas = [(row["file_path"], row["pos"]) for row in positions if row["delete_file_path"] in vectors]
        assert sorted(found) == sorted(javas)


@pytest.mark.parametrize("name", RANGES)
def test_every_kind_of_container(name: str) -> None:
    """Vectors that Java wrote of positions that are known: read, and written to the same bytes."""
    positions = [position for start, stop, step in RANGES[name] for position in range(start, stop, step)]
    blob = (HERE / "vectors" / f"{name}.bin").read_bytes()
    assert deletion_vector.decode(blob, file=name, cardinality=len(positions)).to_numpy().tolist() == positions
    assert deletion_vector.encode(PositionDeleteIndex.from_positions(positions)) == blob


def test_the_fixtures_have_what_they_are_for() -> None:
    """Every version, kind of delete file and file format is among them."""
    entries = [row["data_file"]["struct"] for name in WITH_ENTRIES for row in expected(name)["entries"]]
    kinds = {(entry["content"], entry["file_format"]) for entry in entries}
    assert kinds == {
        *((content, kind) for content in (0, 1, 2) for kind in ("PARQUET", "ORC", "AVRO")),
        (1, "PUFFIN"),
    }
