"""What the tasks of one write share, from the table and its properties. Worker-safe."""

from dataclasses import dataclass, field

from dml.options import WriteOptions

__all__ = ["WriteContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteContext:
    """The target of a write.

    Attributes:
        query_id: A UUID: part of the name of every file that the statement writes, so that an abort finds them.
        format_version: 1, 2 or 3.
        schema_json: The table's current schema (Iceberg JSON): new files hold all its columns.
        specs_json: All partition specs by id (Iceberg JSON): deletes are written under the spec of their data file.
        default_spec_id: Spec of new data files.
        sort_order_json: The table's default sort order (Iceberg JSON).
        data_location: Folder of data files (`write.data.path`, or `<location>/data`), without a final slash.
        table_location: Root of the table.
        properties: The table's properties, for writers of other formats and location providers.
        io_properties: Properties of the FileIO; may hold credentials, so never shown.
        options: The typed properties.
        row_lineage: Whether data files of updated or carried rows must hold `_row_id` and
            `_last_updated_sequence_number` (v3).
        sorted_by_table_order: Whether files are in the table's sort order, and may say so.
    """

    query_id: str
    format_version: int
    schema_json: str
    specs_json: tuple[tuple[int, str], ...]
    default_spec_id: int
    sort_order_json: str
    data_location: str
    table_location: str
    properties: dict[str, str] = field(default_factory=dict)
    io_properties: dict[str, str] = field(default_factory=dict, repr=False)
    options: WriteOptions
    row_lineage: bool = False
    sorted_by_table_order: bool = False
