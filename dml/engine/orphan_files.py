"""`remove_orphan_files` on a table of the session. Driver."""

from dml.engine.engine import Engine
from dml.errors import NotFoundError, NotSupportedError
from dml.maintenance import RemoveOrphanFiles, remove_orphan_files

__all__ = ["remove_orphans"]


def remove_orphans(engine: Engine, parts: tuple[str, ...], call: RemoveOrphanFiles) -> tuple[str, ...]:
    """Remove the orphan files of a table.

    Args:
        engine: The session's means.
        parts: The table's name.
        call: What is asked for.

    Returns:
        The locations of the orphans.

    Raises:
        NotFoundError: no such table.
        DmlError: what `dml.maintenance.remove_orphan_files` raises.
    """
    name = ".".join(parts)
    resolved = engine.registry.resolve(parts)
    if resolved is None:
        raise NotFoundError(f"There is no table '{name}'", hint=engine.registry.proposal(parts), parts=parts)
    if resolved.branch or resolved.tag or resolved.metadata_table:
        raise NotSupportedError(
            f"'{name}' is a part of the table '{resolved.name}': orphan files are those of the whole table",
            hint=f"Name the table: '{resolved.name}'",
            table=name,
        )
    return remove_orphan_files(resolved.catalog, resolved.identifier, call)
