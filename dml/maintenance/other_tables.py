"""Other tables whose files lie among a table's own, and the folders in which a table keeps its files. Driver.

Input: the files below a table's folders. Output: the folders of other tables, in which nothing may be touched; or a
refusal, where another table's files cannot be distinguished from the table's own.

A table is known by its metadata files. One that lies deeper has a metadata folder of its own, and all that is around
that is its. Folders outside of the table's location (`write.data.path` ...) may be shared by tables whose metadata is
elsewhere, so there the tables of the catalog are asked where their files are. Source: Iceberg documentation,
"Configuration", and `LocationProviders`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from dml import limits
from dml.errors import DmlError, NotSupportedError
from dml.maintenance.orphan_choice import Equivalents, ListedFile, NeededFiles, is_inside
from dml.maintenance.reachable_files import read_json
from dml.options import FOLDER_PROPERTIES

__all__ = ["folders_of", "folders_of_others", "is_below", "outermost", "overlap", "refuse_shared_folders"]


def folders_of(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """A table's location, and the folders that its properties name.

    Args:
        location: Of the table.
        properties: Of the table.
    """
    named = (properties[key] for key in FOLDER_PROPERTIES if properties.get(key))
    return tuple(folder.rstrip("/") for folder in (location, *named))


def outermost(folders: Iterable[str], equivalents: Equivalents) -> tuple[str, ...]:
    """The folders that lie in no other, so that no file is listed twice.

    Args:
        folders: In the order of their importance: of two names of one folder the first stays.
        equivalents: Which schemes and authorities are equal.
    """
    kept: list[str] = []
    for folder in folders:
        if not any(is_inside(folder, other, equivalents) for other in kept):
            kept = [*(other for other in kept if not is_inside(other, folder, equivalents)), folder]
    return tuple(kept)


def overlap(one: str, other: str, equivalents: Equivalents) -> bool:
    """Whether two folders are one, or one lies in the other."""
    return is_inside(one, other, equivalents) or is_inside(other, one, equivalents)


def is_below(folder: str, other: str, equivalents: Equivalents) -> bool:
    """Whether a folder lies in another and is not that folder itself."""
    return is_inside(folder, other, equivalents) and not is_inside(other, folder, equivalents)


METADATA_FILES: Final = (".metadata.json", ".metadata.json.gz")
METADATA_FOLDER: Final = "metadata"


def folders_of_others(
    table: Table,
    own_folders: Collection[str],
    listed: Iterable[ListedFile],
    needed: NeededFiles,
    equivalents: Equivalents,
) -> tuple[str, ...]:
    """The folders of tables that lie below a table's folders.

    Args:
        table: The table.
        own_folders: Its folders, with links resolved.
        listed: What is below them.
        needed: What the table needs.
        equivalents: Which schemes and authorities are equal.

    Raises:
        NotSupportedError: another table's metadata lies in the table's own metadata folder, or says that its files lie
            in the table's own folders.
    """
    found: list[str] = []
    for folder, files in metadata_folders(listed).items():
        around = folder.removesuffix(f"/{METADATA_FOLDER}")
        unknown = [file for file in files if not needed.named_like(file)]
        if len(unknown) < len(files) or not any(is_below(around, own, equivalents) for own in own_folders):
            refuse_others_in(table, unknown)
            continue
        newest = max(unknown, key=lambda file: (file.modified_ms or 0, file.path))
        declared = [
            other
            for other in folders_of_other(table, newest)
            if any(overlap(other, own, equivalents) for own in own_folders)
        ]
        if not all(any(is_below(other, own, equivalents) for own in own_folders) for other in declared):
            raise indistinguishable(table, newest.location)
        found += [around, *declared]
    return tuple(found)


def refuse_shared_folders(catalog: Catalog, table: Table, folders: Sequence[str], equivalents: Equivalents) -> None:
    """Refuse folders outside of a table's location in which other tables of the catalog keep files as well.

    Args:
        catalog: The catalog.
        table: The table.
        folders: The folders.
        equivalents: Which schemes and authorities are equal.

    Raises:
        NotSupportedError: another table keeps files there, or it cannot be read where one does.
    """
    if not folders:
        return
    for other in tables(catalog, folders[0]):
        if other.metadata.table_uuid == table.metadata.table_uuid:
            continue
        for folder in folders:
            if any(overlap(folder, used, equivalents) for used in folders_of(other.location(), other.properties)):
                raise NotSupportedError(
                    f"The folder '{folder}' is also used by the table '{'.'.join(other.name())}'",
                    hint="From one of the tables it cannot be known which of its files are orphans: give each table "
                    "folders of its own",
                    folder=folder,
                )


def metadata_folders(listed: Iterable[ListedFile]) -> Mapping[str, list[ListedFile]]:
    folders: defaultdict[str, list[ListedFile]] = defaultdict(list)
    for file in listed:
        if file.relative.endswith(METADATA_FILES):
            folders[file.real_location.rpartition("/")[0]].append(file)
    return folders


def refuse_others_in(table: Table, files: Sequence[ListedFile]) -> None:
    """Metadata files of failed commits are the table's; one of another table means that both share the folder."""
    with ThreadPoolExecutor(limits.READ_THREADS) as pool:
        contents = pool.map(partial(content_of, table.io), files)
        for file, content in zip(files, contents, strict=True):
            if is_of_other(table, content):
                raise indistinguishable(table, file.location)


def folders_of_other(table: Table, file: ListedFile) -> Iterator[str]:
    """Where the table of a metadata file keeps its files; nothing for a copy of this table's own metadata."""
    content = content_of(table.io, file)
    if is_of_other(table, content) and "location" in content:
        yield from folders_of(content["location"], content.get("properties") or {})


def content_of(io: FileIO, file: ListedFile) -> Mapping[str, Any]:
    """A metadata file; empty where it is gone, or is the beginning of one that was never finished."""
    try:
        return read_json(io, file.location) or {}
    except FileNotFoundError:
        return {}


def is_of_other(table: Table, content: Mapping[str, Any]) -> bool:
    own = str(table.metadata.table_uuid)
    return str(content.get("table-uuid", own)).lower() != own


def indistinguishable(table: Table, metadata_file: str) -> NotSupportedError:
    return NotSupportedError(
        f"Another table has files in the folders of the table '{'.'.join(table.name())}': '{metadata_file}' is its "
        "metadata",
        hint="Its files cannot be distinguished from orphans. If that table is gone, delete its metadata files first",
        file=metadata_file,
    )


def tables(catalog: Catalog, folder: str, namespace: tuple[str, ...] = ()) -> Iterator[Table]:
    for inner in catalog.list_namespaces(namespace):
        for identifier in catalog.list_tables(inner):
            try:
                yield catalog.load_table(identifier)
            except NoSuchTableError:  # dropped meanwhile, or a table of another format
                continue
            except DmlError as error:
                raise NotSupportedError(
                    f"Whether the table '{'.'.join(identifier)}' keeps files in '{folder}' too cannot be found out: "
                    f"{error.message}",
                    hint="Repair or drop that table: nothing is deleted from a folder that may be another table's too",
                    folder=folder,
                ) from error
        if len(inner) > len(namespace):
            yield from tables(catalog, folder, tuple(inner))
