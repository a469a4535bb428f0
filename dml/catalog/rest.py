"""The REST catalog with time limits. Driver.

Input: a catalog's properties. Output: PyIceberg's REST catalog, none of whose requests waits for ever.
"""

from functools import partial
from typing import Final

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

__all__ = ["BoundedRestCatalog"]

_CONNECTION_TIMEOUT: Final = "rest.client.connection-timeout-ms"
_SOCKET_TIMEOUT: Final = "rest.client.socket-timeout-ms"
_CONNECTION_TIMEOUT_MS: Final = 10_000
_SOCKET_TIMEOUT_MS: Final = 60_000
# Of signed requests, each after another timeout; PyIceberg's default is 10.
_SIGV4_RETRIES: Final = "rest.sigv4.max-retries"
_FEW_RETRIES: Final = "1"


class BoundedRestCatalog(RestCatalog):
    """A REST catalog that does not wait for ever: PyIceberg sets no time limit on its requests.

    A commit whose answer does not come in time is one whose outcome is looked up. The properties have the names of
    Iceberg's Java library; values are milliseconds.
    """

    _is_found = False

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **{_SIGV4_RETRIES: _FEW_RETRIES, **properties})

    def _fetch_config(self) -> None:
        super()._fetch_config()
        self._is_found = True

    def _create_session(self) -> Session:
        session = super()._create_session()
        connect = int(self.properties.get(_CONNECTION_TIMEOUT, _CONNECTION_TIMEOUT_MS))
        # The first request asks for settings: a server that takes long for that is not there.
        read = int(self.properties.get(_SOCKET_TIMEOUT, _SOCKET_TIMEOUT_MS if self._is_found else connect))
        timeout = (connect / 1000, read / 1000)
        setattr(session, "request", partial(session.request, timeout=timeout))  # noqa: B010 - on this object alone
        return session
