"""Namespaces of a catalog. Driver.

Input: a catalog and the parts of a namespace's name. Output: our errors where PyIceberg has its own.
"""

from collections.abc import Iterable, Mapping

from pyiceberg.catalog import Catalog

from dml.catalog.translation import translated

__all__ = [
    "change_namespace_properties",
    "create_namespace",
    "drop_namespace",
    "list_namespaces",
    "namespace_exists",
    "namespace_properties",
]

Namespace = tuple[str, ...]


def create_namespace(
    catalog: Catalog, namespace: Namespace, properties: Mapping[str, str] | None = None, *, exists_ok: bool = False
) -> None:
    """Create a namespace.

    Args:
        catalog: The catalog.
        namespace: Its parts.
        properties: Its properties.
        exists_ok: Be content where it is there already.

    Raises:
        AlreadyExistsError: it is there already, and that is not fine.
        DmlError: the catalog failed.
    """
    with translated(f"Creating the namespace '{shown(namespace)}'", catalog):
        if exists_ok:
            catalog.create_namespace_if_not_exists(namespace, dict(properties or {}))
        else:
            catalog.create_namespace(namespace, dict(properties or {}))


def drop_namespace(catalog: Catalog, namespace: Namespace) -> None:
    """Drop an empty namespace.

    Raises:
        NotFoundError: it is not there.
        AnalysisError: it is not empty.
        DmlError: the catalog failed.
    """
    with translated(f"Dropping the namespace '{shown(namespace)}'", catalog):
        catalog.drop_namespace(namespace)


def namespace_exists(catalog: Catalog, namespace: Namespace) -> bool:
    """Whether the catalog has a namespace.

    Raises:
        DmlError: the catalog failed.
    """
    with translated(f"Looking for the namespace '{shown(namespace)}'", catalog):
        return catalog.namespace_exists(namespace)


def list_namespaces(catalog: Catalog, parent: Namespace = ()) -> list[Namespace]:
    """The namespaces right below one, or the topmost, in order.

    Raises:
        NotFoundError: the parent is not there.
        DmlError: the catalog failed.
    """
    with translated("Listing namespaces", catalog):
        return sorted(tuple(namespace) for namespace in catalog.list_namespaces(parent))


def namespace_properties(catalog: Catalog, namespace: Namespace) -> dict[str, str]:
    """Properties of a namespace.

    Raises:
        NotFoundError: it is not there.
        DmlError: the catalog failed.
    """
    with translated(f"Reading the namespace '{shown(namespace)}'", catalog):
        return dict(catalog.load_namespace_properties(namespace))


def change_namespace_properties(
    catalog: Catalog, namespace: Namespace, updates: Mapping[str, str], removals: Iterable[str] = ()
) -> None:
    """Set and remove properties of a namespace.

    Raises:
        NotFoundError: it is not there.
        DmlError: the catalog failed.
    """
    with translated(f"Changing the namespace '{shown(namespace)}'", catalog):
        catalog.update_namespace_properties(namespace, set(removals), dict(updates))


def shown(namespace: Namespace) -> str:
    return ".".join(namespace)
