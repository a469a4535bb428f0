"""Settings of a write that have more than one place: a write option, the session, the table. Driver.

The option counts first, then the session's setting `spark.sql.iceberg.` and the same name, then the table's property,
as in the reference (`SparkWriteConf`). Which of them have which place is `PLACES`, of which the table in
docs/configuration.md is made. Compression is that of the format that is written, of data files and of delete files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import VoidTransform

from dml.errors import AnalysisError, ErrorKind
from dml.options import (
    ADVISORY_PARTITION_SIZE,
    AVRO_COMPRESSION,
    DEFAULT_FILE_FORMAT,
    DELETE_AVRO_COMPRESSION,
    DELETE_DEFAULT_FILE_FORMAT,
    DELETE_ORC_COMPRESSION,
    DELETE_PARQUET_COMPRESSION,
    HOOK_PROPERTIES,
    ORC_COMPRESSION,
    ORC_COMPRESSION_STRATEGY,
    PARQUET_COMPRESSION,
    PARQUET_COMPRESSION_LEVEL,
    PARQUET_SHRED_VARIANTS,
    PARQUET_VARIANT_INFERENCE_ROWS,
    SPARK_FANOUT_ENABLED,
    WRITE_DISTRIBUTION_MODE,
    WRITE_TARGET_FILE_SIZE,
    Command,
    DistributionMode,
    choice,
    distribution_mode_of,
    integer,
)
from dml.scan.split import TARGET_SIZE, ChangeDistribution

__all__ = [
    "PLACES",
    "WRITE_OPTIONS",
    "Place",
    "change_distribution",
    "output_spec",
    "write_properties",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a setting can be given.

    Attributes:
        name: The write option, and the end of the session's setting.
        properties: The table's properties, one for each format of files.
        option: Whether there is a write option.
        session: Whether there is a setting of the session.
    """

    name: str
    properties: tuple[str, ...]
    option: bool = False
    session: bool = False


CODECS: Final = {"parquet": PARQUET_COMPRESSION, "orc": ORC_COMPRESSION, "avro": AVRO_COMPRESSION}
DELETE_CODECS: Final = {
    "parquet": DELETE_PARQUET_COMPRESSION,
    "orc": DELETE_ORC_COMPRESSION,
    "avro": DELETE_AVRO_COMPRESSION,
}
CODEC: Final = "compression-codec"

PLACES: Final = (
    Place(name="write-format", properties=(DEFAULT_FILE_FORMAT,), option=True),
    Place(name="target-file-size-bytes", properties=(WRITE_TARGET_FILE_SIZE,), option=True),
    Place(name="fanout-enabled", properties=(SPARK_FANOUT_ENABLED,), option=True),
    Place(name="distribution-mode", properties=(WRITE_DISTRIBUTION_MODE,), option=True, session=True),
    Place(name="advisory-partition-size", properties=(ADVISORY_PARTITION_SIZE,), option=True, session=True),
    Place(name=CODEC, properties=(*CODECS.values(), *DELETE_CODECS.values()), option=True, session=True),
    Place(name="compression-level", properties=(PARQUET_COMPRESSION_LEVEL,), option=True, session=True),
    Place(name="compression-strategy", properties=(ORC_COMPRESSION_STRATEGY,), option=True, session=True),
    Place(name="shred-variants", properties=(PARQUET_SHRED_VARIANTS,), option=True, session=True),
    Place(
        name="variant-inference-buffer-size", properties=(PARQUET_VARIANT_INFERENCE_ROWS,), option=True, session=True
    ),
    *(Place(name=name, properties=(name,), session=True) for name in HOOK_PROPERTIES),
)

WRITE_OPTIONS: Final = frozenset(place.name for place in PLACES if place.option)
OF_SESSION: Final = frozenset(place.name for place in PLACES if place.session)
PROPERTIES: Final = {place.name: place.properties[0] for place in PLACES if place.option and place.name != CODEC}


def write_properties(
    options: Mapping[str, str], session: Mapping[str, str], table: Mapping[str, str]
) -> dict[str, str]:
    """The table properties that options and the session set for one write.

    Args:
        options: The write's options, by name.
        session: The session's settings, by name.
        table: The table's properties.
    """
    given = {**{name: value for name, value in session.items() if name in OF_SESSION}, **options}
    found = {key: given[name] for name, key in PROPERTIES.items() if name in given}
    if CODEC in given:
        properties = {**table, **found}
        data = properties.get(DEFAULT_FILE_FORMAT, "parquet").lower()
        deletes = properties.get(DELETE_DEFAULT_FILE_FORMAT, data).lower()
        # A format that there is not is refused where files are opened.
        codecs = (CODECS.get(data), DELETE_CODECS.get(deletes))
        found |= {key: given[CODEC] for key in codecs if key is not None}
    return found


def change_distribution(
    properties: Mapping[str, str], session: Mapping[str, str], command: Command
) -> ChangeDistribution:
    """How the session, or else the table, wants the rows of a command to come to tasks.

    Args:
        properties: The table's properties.
        session: The session's settings below `spark.sql.iceberg.`, by the rest of their names.
        command: The command.

    Raises:
        AnalysisError: a value that there is not.
    """
    key = distribution_mode_of(command)
    places = {"distribution-mode": key, "advisory-partition-size": ADVISORY_PARTITION_SIZE}
    given = {**properties, **{key: session[name] for name, key in places.items() if name in session}}
    return ChangeDistribution(
        mode=choice(given, key, DistributionMode, DistributionMode.HASH) if key in given else None,
        advisory_size=integer(given, ADVISORY_PARTITION_SIZE, TARGET_SIZE, minimum=1),
    )


def output_spec(table: Table, spec_id: int | None) -> PartitionSpec:
    """The partition spec of new files: the table's, or another one of its history.

    Raises:
        AnalysisError: the table has no such spec, or columns of it are not there any more.
    """
    if spec_id is None:
        return table.spec()
    spec = table.specs().get(spec_id)
    if spec is None:
        raise AnalysisError(
            f"The write option 'output-spec-id' is {spec_id}, and the table has no such partition spec",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It has " + ", ".join(str(known) for known in sorted(table.specs())),
            option="output-spec-id",
        )
    ids = table.schema().field_ids
    gone = [field.name for field in spec.fields if field.source_id not in ids and not is_void(field)]
    if gone:
        raise AnalysisError(
            f"The partition spec {spec.spec_id} has the field '{gone[0]}', whose column the table has not any more",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="Write by another partition spec",
            option="output-spec-id",
        )
    return spec


def is_void(field: PartitionField) -> bool:
    return isinstance(field.transform, VoidTransform)
