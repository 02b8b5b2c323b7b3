"""
What clients show when they log in.
"""

from __future__ import annotations

from typing import Any

from twisted.cred.credentials import UsernamePassword

from ..interfaces import AccountToken, ClientCertificate
from ..net.tls import peerCertificate


def credentialsOf(transport: Any, name: bytes | None, password: bytes | None) -> Any:
    """
    The credentials of a connection that logs in inside its protocol.

    @param transport: the connection. Its client's certificate counts where there is neither name
        nor password.
    @return: C{ICredentials}; C{None} where there are none.
    """
    if name is not None or password is not None:
        return UsernamePassword(name or b"", password or b"")
    certificate = peerCertificate(transport)
    if certificate is None:
        return None
    return ClientCertificate(certificate.commonName, certificate.fingerprint)


def accountToken(credentials: Any) -> AccountToken:
    """
    A name and a password as a name and a token.

    @param credentials: C{IUsernamePassword}.
    """
    # What is not UTF-8 is no name and no token.
    name, token = (
        each.decode("utf-8", "replace") if isinstance(each, bytes) else each
        for each in (credentials.username, credentials.password)
    )
    return AccountToken(name, token)
