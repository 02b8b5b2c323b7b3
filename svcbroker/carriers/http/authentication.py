"""
Authentication: from the credentials of a request, or the certificate of its connection, to the
principal that makes it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from ...access import ANYBODY, Access, Principal, Usage
from ...errors import NotAuthenticated
from ...interfaces import ClientCertificate
from ...net.deferreds import asLeanDeferred
from ...net.tls import peerCertificate

CHALLENGES: Final = (b'Basic realm="svcbroker", charset="UTF-8"', b'Bearer realm="svcbroker"')
"""The values of C{WWW-Authenticate}."""
SESSION_CHALLENGE: Final = b'Session realm="svcbroker"'
"""That of requests with the cookie of a session. Browsers show no dialog for it."""


class Credentials(Enum):
    """
    The rule of a path for credentials.

    @cvar REQUIRED: a request needs a principal.
    @cvar OPTIONAL: a request without credentials is answered too; with wrong ones it is refused.
    @cvar IGNORED: every request is answered.
    """

    REQUIRED = 1
    OPTIONAL = 2
    IGNORED = 3


class ClientAuthenticator:
    """
    Finds the principals of the requests of one connection, and counts it as one of the account that
    has made the last request.

    A request acts by its header C{Authorization}; without one, by the certificate that the client
    has shown to TLS, where an account names it; without one, as an anonymous client.
    """

    def __init__(self, access: Access, channel: Any) -> None:
        """
        @param channel: the connection.
        """
        self._access = access
        self._channel = channel
        self._isCertificateChecked = access.isOpen
        self._certified: Principal | None = None
        self._recalled: Principal | None = None
        self._usage: Usage | None = None

    def count(self, principal: Principal) -> None:
        """
        Count the connection as one of an account.

        @raise QuotaExceeded: the account has as many connections as it may have.
        """
        usage = principal.usage
        if usage is not self._usage and not self._access.isOpen:
            usage.take("connections")
            self._release()
            self._usage = usage

    def close(self) -> None:
        """The connection is closed, or is no longer HTTP."""
        self._release()
        # Otherwise they would be a cycle.
        self._channel = None

    def _release(self) -> None:
        if self._usage is not None:
            self._usage.free("connections")
            self._usage = None

    def recall(self, authorization: bytes | None) -> Principal | None:
        """
        The principal of a request where no credentials have to be checked for it, because they
        were checked a short time ago or none are needed.

        @param authorization: the value of the header; C{None} where there is none.
        @return: C{None} where L{logIn} has to be asked.
        """
        access = self._access
        if access.isOpen:
            return ANYBODY
        if authorization is not None:
            principal = access.recall(authorization)
            if principal is not None and principal is not self._recalled:
                self._recalled = principal
                access.loggedIn(principal, self._address, "http")
            return principal
        if not self._isCertificateChecked:
            # At the first request the handshake is over.
            self._isCertificateChecked = peerCertificate(self._channel.transport) is None
            if not self._isCertificateChecked:
                return None
        certified = self._certified
        if certified is not None and not certified.isRevoked:
            return certified
        return access.anonymous

    @asLeanDeferred
    async def logIn(self, authorization: bytes | None) -> Principal:
        """
        Check the credentials of a request.

        @param authorization: the value of the header; C{None} where there is none.
        @raise NotAuthenticated: they are not valid, or there are none.
        @raise Overloaded: too many log-ins are being checked.
        """
        address = self._address
        if authorization is not None:
            return await self._access.loginHttp(authorization, address)
        if not self._isCertificateChecked:
            self._certified = await self._logInByCertificate(address)
            self._isCertificateChecked = True
        principal = self.recall(None)
        if principal is None:
            raise NotAuthenticated("credentials are needed")
        return principal

    @property
    def _address(self) -> str:
        """The client's IP address; empty where it has none."""
        address: str = getattr(self._channel.getPeer(), "host", "")
        return address

    async def _logInByCertificate(self, address: str) -> Principal | None:
        certificate = peerCertificate(self._channel.transport)
        if certificate is None:
            return None
        credentials = ClientCertificate(
            commonName=certificate.commonName, fingerprint=certificate.fingerprint
        )
        try:
            return await self._access.login(credentials, address)
        except NotAuthenticated:
            # No account names it.
            return None
