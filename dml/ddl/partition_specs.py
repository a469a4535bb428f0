"""Partition specs of CREATE TABLE and ALTER TABLE. Pure; driver.

Input: transform terms of a statement, a schema, and for ALTER the table's metadata. Output: PyIceberg partition
specs. Field names, the reuse of field ids and the void fields of version 1 follow `PartitionSpec.Builder` (CREATE:
`id_bucket`) and `BaseUpdatePartitionSpec` (ALTER: `id_bucket_4`); Iceberg specification, "Partition Evolution".
"""

from collections.abc import Iterable, Sequence

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, TimeTransform, VoidTransform
from pyiceberg.types import NestedField

from dml.ddl.new_schema import ids_by_name
from dml.ddl.terms import AnyTransform, bind_term, term_text
from dml.errors import AlreadyExistsError, NotFoundError, NotSupportedError
from dml.sqlparse.diagnosis import at
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import TransformTerm

__all__ = [
    "add_partition_field",
    "check_partition_names",
    "drop_partition_field",
    "new_spec",
    "replace_partition_field",
    "reuse_partition_ids",
]

SUFFIXES = {"bucket": "_bucket", "truncate": "_trunc", "void": "_null", "identity": ""}


def new_spec(terms: tuple[TransformTerm, ...], schema: Schema) -> PartitionSpec:
    """Return the spec of PARTITIONED BY.

    Args:
        terms: The terms, in order.
        schema: The schema of the new table.

    Returns:
        The spec, with id 0 and field ids from 1000.

    Raises:
        AnalysisError: A term cannot be bound.
        AlreadyExistsError: Two fields are redundant or share a name, or a name is that of a column.
    """
    fields: list[PartitionField] = []
    for term in terms:
        with at(term.span):
            fields.append(new_field(term, schema, fields))
    spec = PartitionSpec(*fields)
    check_partition_names((spec,), schema)
    return spec


def new_field(term: TransformTerm, schema: Schema, before: Sequence[PartitionField]) -> PartitionField:
    source, transform = bind_term(term, schema)
    name = term.name or source_name(schema, source) + SUFFIXES.get(term.transform, f"_{term.transform}")
    added = PartitionField(source.field_id, PARTITION_FIELD_ID_START + len(before), transform, name)
    for field in before:
        if field.source_id == added.source_id and is_redundant(field.transform, transform):
            raise AlreadyExistsError(
                f"The partition field {term_text(added, schema)} repeats {term_text(field, schema)}",
                hint="Remove one of them",
            )
    return added


def add_partition_field(metadata: TableMetadata, term: TransformTerm) -> PartitionSpec:
    """Return the spec after ADD PARTITION FIELD.

    Args:
        metadata: The table.
        term: The new field.

    Returns:
        The spec, with the id of an equal spec of the table, else a new one.

    Raises:
        AnalysisError: The term cannot be bound.
        AlreadyExistsError: The field or its name exists.
    """
    return checked_spec(metadata, with_added(metadata, list(metadata.spec().fields), term))


def drop_partition_field(metadata: TableMetadata, term: TransformTerm) -> PartitionSpec:
    """Return the spec after DROP PARTITION FIELD; a version 1 table keeps a void field instead.

    Args:
        metadata: The table.
        term: The field's term or name.

    Raises:
        NotFoundError: The field does not exist.
    """
    return checked_spec(metadata, without_field(metadata, term))


def replace_partition_field(metadata: TableMetadata, old: TransformTerm, new: TransformTerm) -> PartitionSpec:
    """Return the spec after REPLACE PARTITION FIELD.

    Args:
        metadata: The table.
        old: The old field's term or name.
        new: The new field.

    Raises:
        NotFoundError: The old field does not exist.
        AlreadyExistsError: The new field or its name exists.
    """
    dropped = find_spec_field(metadata, old)
    with at(new.span):
        source, transform = bind_term(new, metadata.schema())
    if dropped.source_id == source.field_id and dropped.transform == transform:
        renamed = [
            with_name(field, new.name or field.name) if field == dropped else field for field in metadata.spec().fields
        ]
        return checked_spec(metadata, renamed)
    kept = without_field(metadata, old)
    with at(new.span):
        return checked_spec(metadata, with_added(metadata, kept, new))


def reuse_partition_ids(metadata: TableMetadata, spec: PartitionSpec, schema: Schema) -> PartitionSpec:
    """Convert a new table's spec to the next spec of the table that it replaces.

    Args:
        metadata: The replaced table.
        spec: The new spec, bound to the new schema.
        schema: The new schema.

    Returns:
        The spec. Fields that the table ever had keep their ids. Version 1 keeps old fields as void fields. If another
        field had the name before, the new field's id is appended to it.

    Raises:
        NotSupportedError: A version 1 table would keep a field without its column.
    """
    refuse_orphaned(metadata, schema)
    fields: list[PartitionField] = []
    fresh = list(spec.fields)
    if metadata.format_version == 1:
        names = {field.name for field in fresh}
        for old in metadata.spec().fields:
            same = next((new for new in fresh if has_same_values(new, old)), None)
            if same is None:
                fields.append(with_name(void(old), f"{old.name}_{old.field_id}" if old.name in names else old.name))
            else:
                fresh.remove(same)
                fields.append(PartitionField(same.source_id, old.field_id, same.transform, same.name))
    last = last_partition_id(metadata)
    for field in fresh:
        known = (
            None if metadata.format_version == 1 else find_historical(metadata, field.source_id, field.transform, None)
        )
        last += known is None
        field_id = last if known is None else known.field_id
        taken = metadata.format_version >= 2 and had_name(metadata, field.name, field_id)
        name = f"{field.name}_{field_id}" if taken else field.name
        fields.append(PartitionField(field.source_id, field_id, field.transform, name))
    return with_spec_id(metadata, fields)


def check_partition_names(specs: Iterable[PartitionSpec], schema: Schema) -> None:
    """Refuse partition field names that are repeated or belong to another column.

    Args:
        specs: The specs.
        schema: The schema.

    Raises:
        AlreadyExistsError: A name is taken.
    """
    for spec in specs:
        seen: set[str] = set()
        for field in spec.fields:
            if field.name in seen:
                raise AlreadyExistsError(f"The partition field '{field.name}' already exists", hint="Name it AS ...")
            seen.add(field.name)
            column = next((column for column in schema.fields if column.name == field.name), None)
            own = isinstance(field.transform, IdentityTransform | VoidTransform)
            if column is not None and not (own and column.field_id == field.source_id):
                raise AlreadyExistsError(
                    f"The name '{field.name}' of a partition field is the name of a column, too",
                    hint="Rename the column or the partition field",
                )


def source_name(schema: Schema, source: NestedField) -> str:
    return schema.find_column_name(source.field_id) or source.name


def has_same_values(one: PartitionField, other: PartitionField) -> bool:
    return one.source_id == other.source_id and one.transform == other.transform


def is_redundant(one: AnyTransform, other: AnyTransform) -> bool:
    return one == other or (isinstance(one, TimeTransform) and isinstance(other, TimeTransform))


def evolved_name(schema: Schema, source: NestedField, term: TransformTerm) -> str:
    # Unlike CREATE, ALTER appends the argument, so that a column can be bucketed again with another number.
    name = source_name(schema, source) + SUFFIXES.get(term.transform, f"_{term.transform}")
    return name if term.argument is None else f"{name}_{term.argument}"


def with_added(metadata: TableMetadata, kept: list[PartitionField], term: TransformTerm) -> list[PartitionField]:
    schema = metadata.schema()
    source, transform = bind_term(term, schema)
    for field in kept:
        if field.source_id == source.field_id and field.transform == transform:
            raise AlreadyExistsError(
                f"The table is partitioned by {term_text(field, schema)} already, as '{field.name}'",
                hint="SHOW CREATE TABLE shows the partitioning",
            )
    known = None
    if metadata.format_version >= 2:
        known = find_historical(metadata, source.field_id, transform, term.name)
    added = known or PartitionField(
        source.field_id,
        last_partition_id(metadata) + 1,
        transform,
        term.name or evolved_name(schema, source, term),
    )
    if metadata.format_version >= 2 and had_name(metadata, added.name, added.field_id):
        raise AlreadyExistsError(
            f"The table had another partition field of the name '{added.name}'",
            hint="Readers would mix the two up: name the new one AS ...",
        )
    # A void field of a dropped field is renamed if a new field takes its name.
    freed = [
        with_name(field, f"{field.name}_{field.field_id}")
        if field.name == added.name and isinstance(field.transform, VoidTransform)
        else field
        for field in kept
    ]
    return [*freed, added]


def without_field(metadata: TableMetadata, term: TransformTerm) -> list[PartitionField]:
    dropped = find_spec_field(metadata, term)
    fields = metadata.spec().fields
    if metadata.format_version == 1:
        return [void(field) if field == dropped else field for field in fields]
    return [field for field in fields if field != dropped]


def find_spec_field(metadata: TableMetadata, term: TransformTerm) -> PartitionField:
    schema, fields = metadata.schema(), metadata.spec().fields
    live = [field for field in fields if not isinstance(field.transform, VoidTransform)]
    bare = term.transform == "identity" and len(term.column) == 1
    columns = {column.name.lower() for column in schema.fields}
    found: list[PartitionField] = []
    if not bare or term.column[0].lower() in columns:
        source, transform = bind_term(term, schema)
        found = [field for field in live if field.source_id == source.field_id and field.transform == transform]
    if bare and not found:
        # The name of a field. From version 2 on, void fields that version 1 kept can be dropped, too.
        named = live if metadata.format_version == 1 else fields
        found = [field for field in named if field.name.lower() == term.column[0].lower()]
    if not found:
        known = ", ".join(f"{term_text(field, schema)} AS {field.name}" for field in live)
        raise NotFoundError(
            f"The table has no partition field {term.column[0] if bare else written_term(term)}",
            hint=f"It is partitioned by {known}" if known else "It is not partitioned",
        )
    return found[0]


def written_term(term: TransformTerm) -> str:
    arguments = [] if term.argument is None else [str(term.argument)]
    return f"{term.transform}({', '.join([*arguments, quote_name(term.column)])})"


def find_historical(
    metadata: TableMetadata, source_id: int, transform: AnyTransform, name: str | None
) -> PartitionField | None:
    for spec in reversed(metadata.partition_specs):
        for field in spec.fields:
            if field.source_id == source_id and field.transform == transform and name in {None, field.name}:
                return field
    return None


def had_name(metadata: TableMetadata, name: str, field_id: int) -> bool:
    # Readers merge the fields of all specs into one struct, so names must be unique across specs.
    return any(
        field.name == name and field.field_id != field_id for spec in metadata.partition_specs for field in spec.fields
    )


def refuse_orphaned(metadata: TableMetadata, schema: Schema) -> None:
    if metadata.format_version > 1:
        return
    ids = set(ids_by_name(schema.fields).values())
    for field in metadata.spec().fields:
        if field.source_id not in ids:
            raise NotSupportedError(
                f"The table has format version 1: it cannot be replaced without the column of '{field.name}'",
                hint="First: ALTER TABLE ... SET TBLPROPERTIES ('format-version' = '2')",
            )


def checked_spec(metadata: TableMetadata, fields: list[PartitionField]) -> PartitionSpec:
    spec = with_spec_id(metadata, fields)
    check_partition_names((spec,), metadata.schema())
    return spec


def with_spec_id(metadata: TableMetadata, fields: list[PartitionField]) -> PartitionSpec:
    spec = PartitionSpec(*fields)
    for known in metadata.partition_specs:
        if spec.compatible_with(known):
            return known
    return PartitionSpec(*fields, spec_id=1 + max(known.spec_id for known in metadata.partition_specs))


def last_partition_id(metadata: TableMetadata) -> int:
    return metadata.last_partition_id or PARTITION_FIELD_ID_START - 1


def void(field: PartitionField) -> PartitionField:
    return PartitionField(field.source_id, field.field_id, VoidTransform(), field.name)


def with_name(field: PartitionField, name: str) -> PartitionField:
    return PartitionField(field.source_id, field.field_id, field.transform, name)
