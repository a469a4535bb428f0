"""REST catalogs whose requests have timeouts. Driver.

`loading` imports this when it loads a REST catalog.
"""

from functools import partial
from typing import Final

from pyiceberg.catalog.rest import RestCatalog
from requests import Session

from dml import limits

__all__ = ["BoundedRestCatalog"]

CONNECTION_TIMEOUT: Final = "rest.client.connection-timeout-ms"
SOCKET_TIMEOUT: Final = "rest.client.socket-timeout-ms"
SIGV4_RETRIES: Final = "rest.sigv4.max-retries"


class BoundedRestCatalog(RestCatalog):
    """A REST catalog with timeouts, which PyIceberg does not set.

    If a commit times out, its outcome is unknown and is looked up. The properties have the names of Iceberg's Java
    library; values are milliseconds.
    """

    _is_found = False

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **{SIGV4_RETRIES: str(limits.REST_SIGNED_RETRIES), **properties})

    def _fetch_config(self) -> None:
        super()._fetch_config()
        self._is_found = True

    def _create_session(self) -> Session:
        session = super()._create_session()
        connect = int(self.properties.get(CONNECTION_TIMEOUT, limits.REST_CONNECT_MS))
        # The first request only fetches settings: a server that does not answer it quickly is treated as unreachable.
        read = int(self.properties.get(SOCKET_TIMEOUT, limits.REST_RESPONSE_MS if self._is_found else connect))
        timeout = (connect / 1000, read / 1000)
        setattr(session, "request", partial(session.request, timeout=timeout))  # noqa: B010 - on this object only
        return session
