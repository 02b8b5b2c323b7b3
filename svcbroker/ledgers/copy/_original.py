"""
The broker that a chain is copied from, and the settings that name it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.web import http
from twisted.web.http_headers import Headers

from ...archive import MAX_PART
from ...errors import NoSuchCall
from ...files import readFile
from ...interfaces import InvalidDescription
from ...net.deferreds import asDeferred
from ...net.descriptions import Readers, absolutePath, readValues
from ...net.http import (
    CertificatePolicy,
    HttpClient,
    HttpError,
    basicAuthorization,
    headerOf,
    makeClient,
    readBody,
)
from ...proofs import Checkpoint

SUMMARY = "A verified copy of a chain that another broker has, for reads and as a standby."

SETTINGS: Mapping[str, str] = {
    "url": "the base URL of the other broker, with a backslash before each colon (required)",
    "account": "the account to log in with (default: none)",
    "password-file": "a file with the account's password on its first line",
    "token-file": "a file with a token on its first line, instead of account and password",
    "certificate": "a PEM file with a certificate and its private key, to log in with",
    "ca": "a PEM file with the authorities of the other broker's certificate (default: those of "
    "the system)",
    "genesis": "the hash of the chain's genesis: no other chain is copied (default: the one that "
    "is there, or the first that comes)",
    "checkpoint": "a block that the chain must have, as HEIGHT\\:HASH (default: none)",
}


@frozen(kw_only=True)
class CopySettings:
    """
    The settings of a copy; L{SETTINGS} explains them.

    @ivar url: without a slash at its end.
    """

    url: str
    account: str | None = None
    passwordFile: Path | None = None
    tokenFile: Path | None = None
    certificate: Path | None = None
    ca: Path | None = None
    genesis: bytes | None = None
    checkpoint: Checkpoint | None = None


def _url(text: str) -> str:
    parts = urlsplit(text)
    _ = parts.port  # raises ValueError
    isURL = text.isascii() and text.isprintable() and " " not in text
    # Credentials in it would be logged.
    if not isURL or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError
    if parts.scheme not in ("http", "https"):
        raise ValueError
    return text.rstrip("/")


def _account(text: str) -> str:
    if not text or ":" in text or not text.isprintable():
        raise ValueError
    return text


def _hash(text: str) -> bytes:
    found = bytes.fromhex(text.removeprefix("0x"))
    if len(found) != 32:
        raise ValueError
    return found


_FILE: Final = "the path of a file"
_READERS: Readers = {
    "url": (_url, "an http or https URL without credentials"),
    "account": (_account, "the name of an account"),
    "password-file": (absolutePath, _FILE),
    "token-file": (absolutePath, _FILE),
    "certificate": (absolutePath, _FILE),
    "ca": (absolutePath, _FILE),
    "genesis": (_hash, "a hash of 64 hexadecimal digits"),
    "checkpoint": (Checkpoint.parse, "HEIGHT:HASH"),
}


def readSettings(settings: Mapping[str, str]) -> CopySettings:
    """
    Read the settings of a ledger description.

    @raise InvalidDescription: one is unknown, missing or has an invalid value.
    """
    values = readValues("a copy", settings, _READERS)
    if "url" not in values:
        raise InvalidDescription("url is missing: the base URL of the broker to copy from")
    if ("account" in values) != ("password-file" in values):
        raise InvalidDescription("account and password-file belong together")
    if "account" in values and "token-file" in values:
        raise InvalidDescription("token-file: there is an account already")
    for key, name in (("password-file", "passwordFile"), ("token-file", "tokenFile")):
        if key in values:
            values[name] = values.pop(key)
    return CopySettings(**values)


WAIT: Final = 20
"""Seconds that an answer waits for the next block."""

TIMEOUT: Final = 60.0
"""Seconds that an answer may take beside that."""

MAX_ANSWER: Final = 2 * MAX_PART
"""The longest answer that is read, in bytes. A larger block cannot be copied."""

_MAX_MESSAGE: Final = 200
_HEIGHT: Final = re.compile(r"[0-9]{1,19}")


class OriginalUnavailable(Exception):
    """
    The original gives no blocks now. The text is the end of a sentence that begins with its URL.
    """


@frozen(kw_only=True)
class OriginalAnswer:
    """
    A part of the original's chain.

    @ivar stream: an export; empty where the chain ends more than one block before what was asked
        for.
    @ivar height: the height up to which the original's chain can be copied.
    @ivar tip: the height of the original's chain.
    """

    stream: bytes
    height: int
    tip: int


class Original:
    """
    Reads the chain of a group over HTTP.
    """

    def __init__(self, url: str, group: str, client: HttpClient, authorization: bytes | None):
        """
        @param url: the broker's base URL.
        @param client: closed by L{close}.
        @param authorization: the value of the header C{Authorization}.
        """
        self.url = url
        self._path = f"{url}/replication/{group}"
        self._client = client
        self._headers = Headers({b"User-Agent": [b"svcbroker"]})
        if authorization is not None:
            self._headers.addRawHeader(b"Authorization", authorization)

    @classmethod
    def connect(cls, reactor: Any, group: str, settings: CopySettings) -> Original:
        """
        Read the files with credentials. Connects to nothing yet.

        @raise ValueError, OSError, CertificateError: one cannot be used.
        """
        authorization = None
        if settings.account is not None and settings.passwordFile is not None:
            password = _secretIn(settings.passwordFile)
            authorization = basicAuthorization(settings.account, password)
        elif settings.tokenFile is not None:
            authorization = b"Bearer " + _secretIn(settings.tokenFile).encode()
        tls = CertificatePolicy.load(settings.certificate, settings.ca)
        client = makeClient(reactor, maxBody=MAX_ANSWER, keep=1, isRepeatable=True, tls=tls)
        return cls(settings.url, group, client, authorization)

    @asDeferred
    async def read(self, first: int, wait: int = WAIT) -> OriginalAnswer:
        """
        Read the next blocks, or wait for the next one. Cancelling ends the request.

        @param first: the height of the first block.
        @param wait: for how long, in seconds.
        @raise OriginalUnavailable: it gives none.
        """
        url = f"{self._path}?from={first}&wait={wait}"
        try:
            answer = await self._client.request(
                "GET", url, headers=self._headers, timeout=wait + TIMEOUT, maxBody=MAX_ANSWER
            )
            body = await readBody(answer)
        except HttpError as error:
            raise OriginalUnavailable(str(error)) from None
        height, tip = (headerOf(answer, f"Svcbroker-{name}") or "" for name in ("Height", "Tip"))
        if _HEIGHT.fullmatch(height) is None or _HEIGHT.fullmatch(tip) is None:
            raise OriginalUnavailable(_explain(answer.code, body))
        stream = body if answer.code == http.OK else b""
        return OriginalAnswer(stream=stream, height=int(height), tip=int(tip))

    def close(self) -> Deferred[Any]:
        """Close idle connections."""
        return self._client.close()


def _secretIn(path: Path) -> str:
    line = readFile(path).decode("utf-8").partition("\n")[0].strip()
    if not line:
        raise ValueError(f"{path} has no secret on its first line")
    return line


def _explain(status: int, body: bytes) -> str:
    try:
        answer = json.loads(body)
        message, code = str(answer["message"]), answer.get("code")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        message, code = "", None
    if message and code != NoSuchCall.code:
        return f"refuses: {message[:_MAX_MESSAGE]!r} (HTTP status {status})"
    return (
        f"is no svcbroker that can be copied (HTTP status {status}): is its path right, such as "
        "/svcbroker?"
    )
