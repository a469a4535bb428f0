"""PyIceberg's exceptions as ours. Driver.

Input: whatever a catalog raised. Output: a `DmlError` whose class says what the caller should do, without credentials.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

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
)

__all__ = ["translate", "translated"]

# The first that fits counts: a class stands before its base class.
_CLASSES: Final[tuple[tuple[tuple[type[Exception], ...], type[DmlError]], ...]] = (
    ((NoSuchTableError, NoSuchNamespaceError, NoSuchViewError, NoSuchIdentifierError), NotFoundError),
    ((TableAlreadyExistsError, NamespaceAlreadyExistsError, ViewAlreadyExistsError), AlreadyExistsError),
    ((CommitFailedException,), CommitConflictError),
    ((CommitStateUnknownException,), CommitStateUnknownError),
    ((UnauthorizedError, ForbiddenError, OAuthError, AuthorizationExpiredError, SignError), SetupError),
    ((NotInstalledError, NoSuchPropertyException), SetupError),
    ((NotImplementedError,), NotSupportedError),
    ((NamespaceNotEmptyError, BadRequestError, ValidationError, ValueError), AnalysisError),
)


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
        raise translate(error, action, catalog.properties) from _shown_cause(error, catalog.properties)


def translate(error: Exception, action: str, properties: Mapping[str, str]) -> DmlError:
    """One of our errors for one that a catalog raised.

    Args:
        error: What was raised.
        action: What was being done.
        properties: The catalog's properties, whose secrets are masked.
    """
    if isinstance(error, DmlError):
        return error
    target = next((ours for theirs, ours in _CLASSES if isinstance(error, theirs)), ExecutionError)
    text = redact(str(error) or type(error).__name__, properties).strip().rstrip(".")
    return target(f"{action} failed: {text}")


def _shown_cause(error: Exception, properties: Mapping[str, str]) -> Exception | None:
    # A traceback shows the cause with its own text: one that holds a secret is left out.
    text = "".join(str(argument) for argument in error.args) + str(error)
    return error if redact(text, properties) == text else None
