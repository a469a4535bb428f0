"""Masks credentials in texts, and withholds them from workers that do not need them. Driver.

Input: a text and the properties of a catalog; the properties of a table's FileIO. Output: the text with all secrets of
the properties masked; the properties that workers need to open the table's files.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["is_secret", "redact", "storage_properties"]

SECRET_KEY: Final = re.compile(
    r"secret|token|password|passwd|passphrase|pwd|credential|(access|api|account|private)-?key|connection-string"
    r"|sas|signature|\bsig\b|authorization|bearer|cookie|^header\."
)
MASK: Final = "***"
# Shorter values ("a", "true") would mask ordinary words, and real secrets are longer.
SHORTEST_SECRET: Final = 4
NO_SECRETS: Final = frozenset({"true", "false", "none", "null"})
CONNECTION_STRING: Final = "connection-string"

CATALOG_KEYS: Final = ("uri", "credential", "token")
SIGNER: Final = "s3.signer"
IMPLEMENTATION: Final = "py-io-impl"
AUTH_MANAGER: Final = "auth.manager"
BEARER: Final = "Bearer "


def redact(text: str, properties: Mapping[str, Any]) -> str:
    """Mask the secrets of a catalog's properties in a text.

    Args:
        text: A message of any origin.
        properties: The catalog's properties. Secrets are the values of keys that match `SECRET_KEY`, and passwords in
            URIs.
    """
    for secret in sorted(secrets_in(properties), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def storage_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the FileIO properties for workers, without those that only give access to the catalog.

    Args:
        properties: The properties of a table's FileIO. PyIceberg includes all properties of the catalog: a database
            URI with its password, a server's token, and driver objects that no other process can use.
    """
    kept = {key: str(value) for key, value in properties.items() if isinstance(value, str | int | float)}
    if not needs_catalog_access(kept):
        return {key: value for key, value in kept.items() if key not in CATALOG_KEYS}
    if not kept.get("uri", "").startswith("http"):
        kept.pop("uri", None)
    header = properties[AUTH_MANAGER].auth_header() if AUTH_MANAGER in properties else None
    if header is not None and header.startswith(BEARER):
        kept["token"] = header.removeprefix(BEARER)
    return kept


def needs_catalog_access(properties: Mapping[str, str]) -> bool:
    """Return True if a FileIO requests signatures from the catalog's server, or is custom and may need any property."""
    return SIGNER in properties or not properties.get(IMPLEMENTATION, "pyiceberg.").startswith("pyiceberg.")


def secrets_in(properties: Mapping[str, Any]) -> set[str]:
    secrets: set[str] = set()
    for key, value in flatten(properties):
        if is_secret(key):
            secrets.update(secret_parts(key.lower(), value))
        if "://" in value:
            secrets.update(uri_secrets(value))
    return {secret for secret in secrets if len(secret) >= SHORTEST_SECRET and secret.lower() not in NO_SECRETS}


def is_secret(key: str) -> bool:
    """Return True if the name of a property suggests that its value is a credential."""
    return SECRET_KEY.search(key.lower()) is not None


def secret_parts(key: str, value: str) -> Iterator[str]:
    """Yield a secret value, and parts of it that are secrets by themselves."""
    yield value
    yield from value.split(":")[1:]  # an OAuth2 credential is "client:secret"
    yield from value.split(maxsplit=1)[1:]  # a header may be "Bearer token"
    for piece in value.split(";"):  # a cookie, or "AccountName=name;AccountKey=secret"
        name, _, part = piece.partition("=")
        if part and (CONNECTION_STRING not in key or is_secret(name)):
            yield part.strip()


def flatten(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield all keys and values, including those of nested settings such as `auth`."""
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from flatten(value)
        else:
            yield str(key), str(value)


def uri_secrets(uri: str) -> Iterator[str]:
    """Yield the secrets of a URI, raw and unquoted: its password, and secret query parameters."""
    try:
        parts = urlsplit(uri)
        found = [parts.password or "", *(value for key, value in parse_qsl(parts.query) if is_secret(key))]
    except ValueError:
        return
    for password in found:
        yield password
        yield unquote(password)
