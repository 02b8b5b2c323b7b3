"""
What the clients over httpx share.
"""

from __future__ import annotations

import ssl

import httpx

from ..files import openFile
from ._effects import HttpRequest, HttpResponse
from ._errors import Unreachable
from ._options import Options

LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=15.0)
"""Streams are connections too, and may be many."""


def makeContext(options: Options) -> ssl.SSLContext:
    """
    The TLS context of a client's connections.

    @raise OSError: a file cannot be read.
    @raise ValueError: a file is not what it must be.
    """
    ca, certificate = options.get("ca"), options.get("certificate")
    key = options.get("certificateKey")
    for each in (ca, certificate, key):
        if each is not None:
            # The errors of the context name no file.
            openFile(each).close()
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except ssl.SSLError:
        raise ValueError(f"{ca} has no certificates in PEM") from None
    if certificate is not None:
        try:
            context.load_cert_chain(str(certificate), None if key is None else str(key))
        except ssl.SSLError as error:
            names = " and ".join(str(each) for each in (certificate, key) if each is not None)
            raise ValueError(f"{names}: no certificate with its key in PEM: {error}") from None
    return context


def buildRequest(client: httpx.Client | httpx.AsyncClient, request: HttpRequest) -> httpx.Request:
    """A request as httpx has it."""
    return client.build_request(
        request.method,
        request.url,
        headers=request.headers,
        content=request.body or None,
        timeout=request.timeout,
    )


def answerOf(response: httpx.Response, body: bytes = b"") -> HttpResponse:
    """An answer of httpx."""
    return HttpResponse(status=response.status_code, headers=response.headers, body=body)


def failureOf(error: httpx.RequestError) -> Unreachable:
    """Why there is no answer."""
    isSent = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    reason = str(error) or type(error).__name__
    return Unreachable(f"{Unreachable.text}: {reason}", isSent=isSent, isFinal=cause is not None)
