"""Credentials out of texts: what a message may say of a catalog's properties. Driver.

Input: a text and the properties of a catalog. Output: the text with every secret among their values masked.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

__all__ = ["redact"]

_SECRET_KEY: Final = re.compile(r"secret|token|password|passwd|credential|access-key|api-key|account-key|sas|signature")
_MASK: Final = "***"
# Shorter values ("a", "true") would mask ordinary words, and nobody's secret is that short.
_SHORTEST_SECRET: Final = 4


def redact(text: str, properties: Mapping[str, str]) -> str:
    """A text without the secrets that a catalog's properties hold.

    Args:
        text: A message, of any origin.
        properties: The catalog's properties: values of keys that name a secret, and passwords in URIs, are secrets.
    """
    for secret in sorted(_secrets(properties), key=len, reverse=True):
        text = text.replace(secret, _MASK)
    return text


def _secrets(properties: Mapping[str, str]) -> set[str]:
    secrets: set[str] = set()
    for key, value in properties.items():
        if _SECRET_KEY.search(key.lower()):
            secrets.add(str(value))
            # An OAuth2 credential is "client:secret".
            secrets.update(str(value).split(":")[1:])
        password = _password(str(value)) if "://" in str(value) else None
        if password:
            secrets.update((password, unquote(password)))
    return {secret for secret in secrets if len(secret) >= _SHORTEST_SECRET}


def _password(uri: str) -> str | None:
    try:
        return urlsplit(uri).password
    except ValueError:
        return None
