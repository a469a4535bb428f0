"""Credentials out of texts, and away from workers that do not need them. Driver.

Input: a text and the properties of a catalog; the properties of a table's FileIO. Output: the text with every secret
among their values masked; the properties with which workers open the table's files.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

__all__ = ["redact", "storage_properties"]

SECRET_KEY: Final = re.compile(
    r"secret|token|password|passwd|passphrase|pwd|credential|(access|api|account|private)-?key|connection-string"
    r"|sas|signature|\bsig\b|authorization|bearer|cookie|^header\."
)
MASK: Final = "***"
# Shorter values ("a", "true") would mask ordinary words, and nobody's secret is that short.
SHORTEST_SECRET: Final = 4
NO_SECRETS: Final = frozenset({"true", "false", "none", "null"})
CONNECTION_STRING: Final = "connection-string"

CATALOG_KEYS: Final = ("uri", "credential", "token")
SIGNER: Final = "s3.signer"
IMPLEMENTATION: Final = "py-io-impl"
AUTH_MANAGER: Final = "auth.manager"
BEARER: Final = "Bearer "


def redact(text: str, properties: Mapping[str, Any]) -> str:
    """A text without the secrets that a catalog's properties hold.

    Args:
        text: A message, of any origin.
        properties: The catalog's properties: values of keys that name a secret, and passwords in URIs, are secrets.
    """
    for secret in sorted(secrets_in(properties), key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def storage_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """The properties of a FileIO for workers: what opens files, and not what opens the catalog.

    Args:
        properties: Of a table's FileIO. PyIceberg puts all of the catalog's among them: the URI of a database with its
            password, the token of a server, and objects of the driver that no other process can use.
    """
    kept = {key: str(value) for key, value in properties.items() if isinstance(value, str | int | float)}
    if not asks_catalog(kept):
        return {key: value for key, value in kept.items() if key not in CATALOG_KEYS}
    if not kept.get("uri", "").startswith("http"):
        kept.pop("uri", None)
    header = properties[AUTH_MANAGER].auth_header() if AUTH_MANAGER in properties else None
    if header is not None and header.startswith(BEARER):
        kept["token"] = header.removeprefix(BEARER)
    return kept


def asks_catalog(properties: Mapping[str, str]) -> bool:
    """Whether a FileIO asks the catalog's server for signatures, or is the user's own and may want anything."""
    return SIGNER in properties or not properties.get(IMPLEMENTATION, "pyiceberg.").startswith("pyiceberg.")


def secrets_in(properties: Mapping[str, Any]) -> set[str]:
    secrets: set[str] = set()
    for key, value in flat(properties):
        if is_secret(key):
            secrets.update(secret_parts(key.lower(), value))
        if "://" in value:
            secrets.update(passwords(value))
    return {secret for secret in secrets if len(secret) >= SHORTEST_SECRET and secret.lower() not in NO_SECRETS}


def is_secret(key: str) -> bool:
    return SECRET_KEY.search(key.lower()) is not None


def secret_parts(key: str, value: str) -> Iterator[str]:
    """A secret value, and what of it may stand in a text alone."""
    yield value
    yield from value.split(":")[1:]  # an OAuth2 credential is "client:secret"
    yield from value.split(maxsplit=1)[1:]  # a header may be "Bearer token"
    for piece in value.split(";"):  # a cookie, or "AccountName=name;AccountKey=secret"
        name, _, part = piece.partition("=")
        if part and (CONNECTION_STRING not in key or is_secret(name)):
            yield part.strip()


def flat(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """All texts, those of nested settings such as `auth` included."""
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from flat(value)
        else:
            yield str(key), str(value)


def passwords(uri: str) -> Iterator[str]:
    """What is secret in a URI, as written and as meant: before the host, and among its parameters."""
    try:
        parts = urlsplit(uri)
        found = [parts.password or "", *(value for key, value in parse_qsl(parts.query) if is_secret(key))]
    except ValueError:
        return
    for password in found:
        yield password
        yield unquote(password)
