"""Secrets that users give a catalog come out of nothing that is told: wherever they stand, and however it fails."""

import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from dml.catalog import load, load_table, translate
from dml.catalog.credentials import redact
from dml.errors import DmlError

SECRET = "Zx9-recognizable-Q7"

PLACES: dict[str, Any] = {
    "token": SECRET,
    "credential": f"client:{SECRET}",
    "oauth2-client-secret": SECRET,
    "auth": {"type": "basic", "basic": {"username": "u", "password": SECRET}},
    "auth.custom": {"type": "custom", "custom": {"bearer": SECRET}},
    "header.Authorization": f"Bearer {SECRET}",
    "header.X-Api-Key": SECRET,
    "header.Cookie": f"sid={SECRET}",
    "s3.access-key-id": SECRET,
    "s3.secret-access-key": SECRET,
    "s3.session-token": SECRET,
    "s3.proxy-uri": f"http://user:{SECRET}@proxy",
    "s3.signer.uri": f"https://host/?sig={SECRET}",
    "client.access-key-id": SECRET,
    "client.secret-access-key": SECRET,
    "client.session-token": SECRET,
    "glue.secret-access-key": SECRET,
    "dynamodb.session-token": SECRET,
    "adls.account-key": SECRET,
    "adls.connection-string": f"AccountName=name;AccountKey={SECRET};EndpointSuffix=core.windows.net",
    "adls.sas-token": SECRET,
    "adls.client-secret": SECRET,
    "gcs.oauth2.token": SECRET,
    "hf.token": SECRET,
    "X-API-KEY": SECRET,
    "ssl.passphrase": SECRET,
    "db.pwd": SECRET,
    "jwt.private-key": SECRET,
}


@pytest.mark.parametrize("key", PLACES)
def test_a_secret_is_masked_wherever_it_was_given(key: str) -> None:
    """Whole, and what of it may stand alone."""
    text = redact(f"failed: {SECRET}, {PLACES[key]}, Bearer {SECRET}, true, core.windows.net", {key: PLACES[key]})
    assert SECRET not in text
    assert text.startswith("failed: ***")
    assert text.endswith("true, core.windows.net")


@pytest.mark.parametrize(
    "uri",
    [
        f"postgresql+psycopg2://user:{SECRET}@host:5432/db",
        f"postgresql+psycopg2://host/db?user=u&password={SECRET}",
        f"https://{SECRET[:0]}user:{SECRET}@host/catalog",
        f"https://host/catalog?Token={SECRET}",
    ],
)
def test_a_password_in_a_uri_is_masked(uri: str) -> None:
    text = redact(f"cannot connect to {uri} with {SECRET}", {"uri": uri})
    assert SECRET not in text
    assert "host" in text


def test_settings_that_are_no_secrets_mask_no_words() -> None:
    """Their names have the words of secrets."""
    assert redact("it is true, not false", {"token-refresh-enabled": "true", "credential": "false"}) == (
        "it is true, not false"
    )


def told(error: BaseException) -> str:
    """All that anybody prints of an error: its text, its fields, its causes and its traceback with theirs."""
    chain: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        chain += [str(seen), repr(seen), repr(getattr(seen, "__dict__", "")), repr(seen.args)]
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return "\n".join([*chain, *traceback.format_exception(error)])


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "rest", "uri": f"http://user:{SECRET}@127.0.0.1:1/catalog"},
        {"type": "sql", "uri": f"postgresql+psycopg2://user:{SECRET}@127.0.0.1:1/db"},
        {"type": "sql", "uri": f"nosuchdialect://user:{SECRET}@127.0.0.1:1/db"},
        {"type": "sql", "uri": f"sqlite:////no/such/folder/{SECRET}?token={SECRET}"},
        {"type": SECRET, "token": SECRET},
        {"py-catalog-impl": "no.such.Catalog"},
    ],
    ids=["rest", "postgresql", "dialect", "sqlite", "type", "class"],
)
def test_a_catalog_that_does_not_load_tells_no_secret(
    kind: dict[str, str], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither in the error and its causes, nor in what is logged or printed meanwhile."""
    secrets = {key: value for key, value in PLACES.items() if not key.startswith("auth")}
    with caplog.at_level(logging.DEBUG), pytest.raises(DmlError) as raised:
        load("lake", **{**secrets, "warehouse": "s3://bucket", **kind})
    assert SECRET not in told(raised.value)
    assert SECRET not in caplog.text
    assert SECRET not in "".join(capfd.readouterr())


def test_secrets_of_the_environment_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg reads catalogs from it."""
    monkeypatch.setenv("PYICEBERG_CATALOG__FROM_ENV__URI", f"http://user:{SECRET}@127.0.0.1:1/")
    monkeypatch.setenv("PYICEBERG_CATALOG__FROM_ENV__TOKEN", SECRET)
    with pytest.raises(DmlError) as raised:
        load("from_env")
    assert SECRET not in told(raised.value)


def test_a_storage_that_fails_tells_no_secret(tmp_path: Path) -> None:
    """Whatever its driver says."""
    catalog = load("lake", str(tmp_path), **PLACES)
    error = translate(OSError(f"no access with {SECRET} at http://user:{SECRET}@proxy"), "Reading", catalog.properties)
    assert SECRET not in told(error)
    with pytest.raises(DmlError) as raised:
        load_table(catalog, ("db", "none"))
    assert SECRET not in told(raised.value)
    assert SECRET not in repr(catalog)
