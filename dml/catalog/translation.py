"""Translates exceptions of catalogs and storages to RowDelta's errors. Driver.

Input: an exception of a catalog or its storage. Output: a `DmlError` whose class tells callers how to react, without
credentials.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchIdentifierError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NoSuchViewError,
    NotInstalledError,
    OAuthError,
    SignError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
    ViewAlreadyExistsError,
)
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement
from sqlalchemy.exc import SQLAlchemyError, StatementError

from dml.catalog.credentials import redact
from dml.errors import (
    AlreadyExistsError,
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    DmlError,
    ErrorKind,
    ExecutionError,
    NotFoundError,
    NotSupportedError,
    SetupError,
    ValidationFailedError,
)
from dml.lazy_imports import loaded_class

__all__ = ["error_text", "is_unreachable", "shown_cause", "translate", "translate_errors", "unmet_requirement"]

# The first match wins, so subclasses come before their base classes.
CLASSES: Final[tuple[tuple[tuple[type[Exception], ...], type[DmlError]], ...]] = (
    ((NoSuchTableError, NoSuchNamespaceError, NoSuchViewError, NoSuchIdentifierError), NotFoundError),
    ((TableAlreadyExistsError, NamespaceAlreadyExistsError, ViewAlreadyExistsError), AlreadyExistsError),
    ((CommitFailedException,), CommitConflictError),
    ((CommitStateUnknownException,), CommitStateUnknownError),
    ((UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError, SignError), SetupError),
    ((NotInstalledError, NoSuchPropertyException), SetupError),
    ((NotImplementedError,), NotSupportedError),
    ((NamespaceNotEmptyError, BadRequestError, ValidationError, ValueError), AnalysisError),
)

REFUSED: Final = "Check the credentials among the catalog's properties, and what they are allowed to do"
SERVER: Final = "Check that the catalog's server runs, and its uri"
DATABASE: Final = "Check that the catalog's database runs and can be written to, and its uri, user and password"
STORAGE: Final = (
    "Check that the storage can be reached, and the catalog's properties for it: its endpoint, region and credentials, "
    "and that the bucket or folder of the warehouse is there"
)
# Errors of AWS clients are not OSErrors, and the packages may not be installed, so the module name is compared.
STORAGE_PACKAGES: Final = frozenset({"aiobotocore", "aiohttp", "botocore"})
HINTS: Final[tuple[tuple[tuple[type[Exception], ...], str], ...]] = (
    ((UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError, SignError), REFUSED),
    ((SQLAlchemyError,), DATABASE),
    ((OSError,), STORAGE),
)
BACKGROUND: Final = re.compile(r"\s*\(Background on this error at: \S+\)")


@contextmanager
def translate_errors(action: str, catalog: Catalog) -> Iterator[None]:
    """Translate errors of an action on a catalog.

    Args:
        action: The start of the message, "Creating the table 'db.t'".
        catalog: The catalog, whose credentials are masked in messages.

    Raises:
        DmlError: The action failed.
    """
    try:
        yield
    except DmlError:
        raise
    except Exception as error:  # noqa: BLE001 - catalogs raise what their drivers raise
        raise translate(error, action, catalog.properties) from shown_cause(error, catalog.properties)


def translate(error: Exception, action: str, properties: Mapping[str, Any]) -> DmlError:
    """Translate an exception of a catalog to a RowDelta error.

    Args:
        error: The exception.
        action: The action that failed, as the start of the message.
        properties: The catalog's properties, whose secrets are masked.
    """
    if isinstance(error, DmlError):
        return error
    target = next((found for sources, found in CLASSES if isinstance(error, sources)), ExecutionError)
    kind = ErrorKind.NOT_EMPTY if isinstance(error, NamespaceNotEmptyError) else None
    return target(f"{action} failed: {error_text(error, properties)}", kind=kind, hint=hint_for(error))


def unmet_requirement(
    requirements: Iterable[TableRequirement], metadata: TableMetadata, action: str
) -> ValidationFailedError | None:
    """Return the error for a refused commit whose requirements contradict the metadata that it was based on.

    No other commit landed first: retrying would only use up the retries and then report a conflict.

    Args:
        requirements: The requirements of the commit.
        metadata: The metadata that the commit was based on.
        action: The start of the message, as for `translate_errors`.

    Returns:
        The error to raise; None if all requirements held, so that another commit may have landed first.
    """
    for requirement in requirements:
        try:
            requirement.validate(metadata)
        except CommitFailedException as error:
            return ValidationFailedError(
                f"{action} can never succeed, because a requirement does not hold: {error}",
                hint="This is not a conflict with another commit, so running it again would not help: report it",
                requirement=requirement.model_dump().get("type"),
            )
    return None


def error_text(error: Exception, properties: Mapping[str, Any]) -> str:
    """Return the text of an error on one line, without secrets and without a final period.

    Args:
        error: The exception.
        properties: The catalog's properties, whose secrets are masked.
    """
    cause = error.orig if isinstance(error, StatementError) else None  # without the SQL text and its parameters
    text = BACKGROUND.sub("", str(cause or error)) or type(error).__name__
    return " ".join(redact(text, properties).split()).rstrip(".")


def is_unreachable(error: Exception) -> bool:
    """Return True if an error means that a catalog or storage is unreachable or denies access."""
    return hint_for(error) is not None


def hint_for(error: Exception) -> str | None:
    if type(error).__module__.partition(".")[0] in STORAGE_PACKAGES:
        return STORAGE
    if isinstance(error, loaded_class("requests", "RequestException")):  # these are OSErrors too
        return SERVER
    return next((hint for sources, hint in HINTS if isinstance(error, sources)), None)


def shown_cause(error: Exception, properties: Mapping[str, Any]) -> Exception | None:
    """Return an error for use as a cause, or None if its text or those of its causes contain a secret.

    Tracebacks print the texts of all causes.

    Args:
        error: The exception.
        properties: The catalog's properties.
    """
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        text = "".join(str(argument) for argument in cause.args) + str(cause)
        if redact(text, properties) != text:
            return None
        cause = cause.__cause__ or cause.__context__
    return error
