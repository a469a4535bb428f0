"""Where a server may listen, and how to reach it."""

from pathlib import Path

import pytest

from dml.errors import SetupError
from dml.serve import Listen, check_environment, check_settings, is_loopback, url_host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_this_machine_alone_needs_no_token(host: str) -> None:
    """And is called localhost: PySpark's client shows a token to no other name without TLS."""
    assert is_loopback(host)
    Listen(host=host, thrift_port=10000).check()
    assert url_host(host) == "localhost"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "lake.example.com"])
def test_others_need_a_token(host: str) -> None:
    """Or the user insists."""
    with pytest.raises(SetupError, match="SPARK_CONNECT_AUTHENTICATE_TOKEN"):
        Listen(host=host).check()
    Listen(host=host, token="secret").check()
    Listen(host=host, insecure=True).check()


def test_the_thrift_server_has_no_token() -> None:
    """So it does not listen for others, unless the user insists."""
    with pytest.raises(SetupError, match="Thrift"):
        Listen(host="10.0.0.5", token="secret", thrift_port=10000).check()
    Listen(host="10.0.0.5", thrift_port=10000, insecure=True).check()


@pytest.mark.parametrize("token", ["", "  "])
def test_an_empty_token_is_none(token: str) -> None:
    """It would be one that everybody has."""
    with pytest.raises(SetupError, match="empty"):
        Listen(token=token).check()


@pytest.mark.parametrize(
    ("key", "option"),
    [
        ("spark.connect.grpc.binding.address", "--host"),
        ("spark.connect.grpc.binding.port", "--port"),
        ("spark.connect.authenticate.token", "--token"),
        ("spark.hadoop.hive.server2.thrift.bind.host", "--host"),
        ("spark.hive.server2.thrift.port", "--thrift"),
    ],
)
def test_no_setting_opens_what_is_guarded(key: str, option: str) -> None:
    """`--conf` would go past the check of the address."""
    with pytest.raises(SetupError, match=key) as caught:
        check_settings({"spark.master": "local[1]", key: "0.0.0.0"})
    assert option in str(caught.value.hint)
    check_settings({"spark.connect.grpc.maxInboundMessageSize": "1"})


@pytest.mark.parametrize("name", ["HIVE_SERVER2_THRIFT_BIND_HOST", "HIVE_SERVER2_THRIFT_PORT"])
def test_no_variable_opens_what_is_guarded(name: str) -> None:
    """Hive's Thrift server takes it before any setting."""
    with pytest.raises(SetupError, match=name):
        check_environment(Listen(thrift_port=10000), {name: "0.0.0.0"})
    check_environment(Listen(), {name: "0.0.0.0"})


def test_an_address_stands_in_a_url_as_it_must() -> None:
    """Those with colons in brackets."""
    assert url_host("fe80::1") == "[fe80::1]"
    assert url_host("lake.example.com") == "lake.example.com"


def test_settings_are_those_of_sparks_servers(tmp_path: Path) -> None:
    """Never the token: PySpark writes them into a command line, which every user of the machine can read."""
    settings = Listen(port=0).settings(tmp_path)
    assert settings["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert not [key for key in settings if "hive" in key]
    settings = Listen(token="secret", thrift_port=10001).settings(tmp_path)
    assert "secret" not in settings.values()
    assert settings["spark.hadoop.hive.server2.thrift.port"] == "10001"
    assert (tmp_path / "local").is_dir()
