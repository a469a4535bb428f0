"""`verify` on a table of the session. Driver."""

from dml.catalog.translation import translated
from dml.engine.engine import Engine
from dml.errors import NotFoundError, NotSupportedError
from dml.verification import Verification, verify

__all__ = ["verify_table"]


def verify_table(
    engine: Engine, parts: tuple[str, ...], snapshot_id: int | None = None, *, every_file: bool = False
) -> Verification:
    """Recount a snapshot of a table from its files.

    Args:
        engine: The session's means.
        parts: The table's name, with a branch or tag at its end if that one's snapshot is meant.
        snapshot_id: The snapshot; None for the current one of the table, branch or tag.
        every_file: Open all data files, not only those that the snapshot touched.

    Raises:
        NotFoundError: no such table, branch, tag or snapshot.
        DmlError: what `dml.verification.verify` raises.
    """
    name = ".".join(parts)
    resolved = engine.registry.resolve(parts)
    if resolved is None:
        raise NotFoundError(f"There is no table '{name}'", hint=engine.registry.proposal(parts), parts=parts)
    if resolved.metadata_table:
        raise NotSupportedError(f"'{name}' is a metadata table", hint=f"Name the table: '{resolved.name}'", table=name)
    table, reference = resolved.table, resolved.branch or resolved.tag
    if snapshot_id is not None:
        snapshot = table.snapshot_by_id(snapshot_id)
    else:
        snapshot = table.current_snapshot() if reference is None else table.snapshot_by_name(reference)
    if snapshot is None and (snapshot_id is not None or reference is not None):
        missing = f"branch or tag '{reference}'" if snapshot_id is None else f"snapshot {snapshot_id}"
        raise NotFoundError(
            f"The table '{resolved.name}' has no {missing}",
            hint="A snapshot may have been expired",
            table=resolved.name,
        )
    with translated(f"Verifying the table '{resolved.name}'", resolved.catalog):
        return verify(table, snapshot, resolved.name, every_file=every_file)
