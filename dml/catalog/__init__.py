"""PyIceberg catalogs with RowDelta's errors and format version 3 support. Driver."""

from dml.catalog.loading import load
from dml.catalog.tables import (
    CommitBase,
    LoadState,
    change_namespace_properties,
    create_namespace,
    create_table,
    drop_namespace,
    drop_table,
    list_namespaces,
    list_tables,
    load_table,
    namespace_exists,
    namespace_properties,
    register_table,
    rename_table,
    stage_table,
    table_exists,
)
from dml.catalog.translation import translate, translate_errors, unmet_requirement
from dml.catalog.views import ViewDefinition, drop_view, has_views, list_views, load_view, rename_view, save_view

__all__ = [
    "CommitBase",
    "LoadState",
    "ViewDefinition",
    "change_namespace_properties",
    "create_namespace",
    "create_table",
    "drop_namespace",
    "drop_table",
    "drop_view",
    "has_views",
    "list_namespaces",
    "list_tables",
    "list_views",
    "load",
    "load_table",
    "load_view",
    "namespace_exists",
    "namespace_properties",
    "register_table",
    "rename_table",
    "rename_view",
    "save_view",
    "stage_table",
    "table_exists",
    "translate",
    "translate_errors",
    "unmet_requirement",
]
