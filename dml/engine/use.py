"""USE: the catalog and namespace of unqualified names. Driver."""

from dml.catalog.namespaces import namespace_exists
from dml.engine.engine import Engine
from dml.errors import NotFoundError
from dml.sqlparse.statements import Use
from dml.suggestions import did_you_mean

__all__ = ["run_use"]


def run_use(engine: Engine, statement: Use, text: str) -> None:
    """Change the current catalog or namespace of the session.

    Raises:
        NotFoundError: there is no such catalog or namespace.
    """
    registry = engine.registry
    name = statement.name
    if statement.catalog_only or (len(name) == 1 and name[0] in registry.catalogs):
        registry.catalog(name[0])
        registry.current_catalog = name[0]
        registry.current_namespace = ("default",)
        return
    catalog_name, namespace = (name[0], name[1:]) if name[0] in registry.catalogs else (registry.current_catalog, name)
    if not namespace_exists(registry.catalog(catalog_name), namespace):
        known = [".".join(found) for found in registry.catalog(catalog_name).list_namespaces()]
        raise NotFoundError(
            f"There is no namespace '{'.'.join(namespace)}' in the catalog '{catalog_name}'",
            sql=text,
            position=statement.span.start,
            length=statement.span.end - statement.span.start,
            hint=did_you_mean(".".join(namespace), known),
        )
    registry.current_catalog, registry.current_namespace = catalog_name, namespace
