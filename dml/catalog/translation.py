"""PyIceberg's exceptions as ours. Driver.

Input: whatever a catalog or its storage raised. Output: a `DmlError` whose class says what the caller should do, and
that holds no credentials.
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
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from dml.catalog.credentials import redact
from dml.errors import (
    AlreadyExistsError,
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    DmlError,
    ExecutionError,
    NotFoundError,
    NotSupportedError,
    SetupError,
    ValidationFailedError,
)

__all__ = ["error_text", "is_unreachable", "shown_cause", "translate", "translated", "unmet_requirement"]

# The first that fits counts: a class stands before its base class.
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
DATABASE: Final = "Check that the catalog's database runs, and its uri, user and password"
STORAGE: Final = (
    "Check that the storage can be reached, and the catalog's properties for it: its endpoint, region and credentials, "
    "and that the bucket or folder of the warehouse is there"
)
# The errors of AWS's client are no OSErrors, and it is not always installed.
STORAGE_PACKAGES: Final = frozenset({"aiobotocore", "aiohttp", "botocore"})
HINTS: Final[tuple[tuple[tuple[type[Exception], ...], str], ...]] = (
    ((UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError, SignError), REFUSED),
    ((RequestException,), SERVER),  # these are OSErrors too
    ((SQLAlchemyError,), DATABASE),
    ((OSError,), STORAGE),
)
BACKGROUND: Final = re.compile(r"\s*\(Background on this error at: \S+\)")


@contextmanager
def translated(action: str, catalog: Catalog) -> Iterator[None]:
    """Run an action on a catalog; what it raises comes out as one of our errors.

    Args:
        action: What is being done, as it stands in a message: "Creating the table 'db.t'".
        catalog: The catalog, whose credentials are kept out of messages.

    Raises:
        DmlError: the action failed.
    """
    try:
        yield
    except DmlError:
        raise
    except Exception as error:  # noqa: BLE001 - catalogs raise what their drivers raise
        raise translate(error, action, catalog.properties) from shown_cause(error, catalog.properties)


def translate(error: Exception, action: str, properties: Mapping[str, Any]) -> DmlError:
    """One of our errors for one that a catalog raised.

    Args:
        error: What was raised.
        action: What was being done.
        properties: The catalog's properties, whose secrets are masked.
    """
    if isinstance(error, DmlError):
        return error
    target = next((ours for theirs, ours in CLASSES if isinstance(error, theirs)), ExecutionError)
    return target(f"{action} failed: {error_text(error, properties)}", hint=hint_for(error))


def unmet_requirement(
    requirements: Iterable[TableRequirement], metadata: TableMetadata, action: str
) -> ValidationFailedError | None:
    """The error for a refused commit that requires what was not true even of the table that it was made for.

    It was lost to no other writer: to try it again would only use up the retries, and call it a conflict.

    Args:
        requirements: What was required.
        metadata: The table for which the commit was made.
        action: What was being done, as in `translated`.

    Returns:
        The error to raise; None where all that was required was so, and another writer may have been first.
    """
    for requirement in requirements:
        try:
            requirement.validate(metadata)
        except CommitFailedException as error:
            return ValidationFailedError(
                f"{action} can never succeed, as it requires what is not so: {error}",
                hint="No other writer is in the way, so running it again would not help: report it",
                requirement=requirement.model_dump().get("type"),
            )
    return None


def error_text(error: Exception, properties: Mapping[str, Any]) -> str:
    """What an error says, without secrets, on as few lines as it can be, and without a final period.

    Args:
        error: What was raised.
        properties: The catalog's properties, whose secrets are masked.
    """
    text = BACKGROUND.sub("", str(error)) or type(error).__name__
    return " ".join(redact(text, properties).split()).rstrip(".")


def is_unreachable(error: Exception) -> bool:
    """Whether an error says that a catalog or a storage cannot be reached, or does not let us in."""
    return hint_for(error) is not None


def hint_for(error: Exception) -> str | None:
    if type(error).__module__.partition(".")[0] in STORAGE_PACKAGES:
        return STORAGE
    return next((hint for theirs, hint in HINTS if isinstance(error, theirs)), None)


def shown_cause(error: Exception, properties: Mapping[str, Any]) -> Exception | None:
    """An error as the cause of another one; None where it, or what it came from, holds a secret.

    A traceback shows causes with their own texts.

    Args:
        error: What was raised.
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
