"""
The broker that a chain is copied from: the settings that name it, what is asked of it, and the
verification of what it answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.web import http
from twisted.web.http_headers import Headers

from ...archive import (
    MAX_PART,
    Begin,
    BlockVerifier,
    End,
    StreamBroken,
    StreamedBlock,
    StreamReader,
    VerifiedBlock,
    isSameBody,
)
from ...chain import (
    CertificateInvalid,
    Genesis,
    Header,
    InvalidBlock,
    Malformed,
    ValidatorSet,
    decodeBody,
    merkleRoot,
)
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
from ...proofs import Checkpoint, checkFinal, storedCertificate
from ...storage import Store

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


class CopyRefusal(Enum):
    """
    Reasons for copying nothing more.

    @cvar CHAIN: the original has another chain than the copy, or than it should have.
    @cvar BLOCK: a block does not hold, or contents are missing.
    @cvar CONTRADICTION: the validators have decided two different blocks: there are two histories
        of one chain.
    """

    CHAIN = "chain"
    BLOCK = "block"
    CONTRADICTION = "contradiction"


class CopyRefused(Exception):
    """
    The error for blocks of the original that must not be copied. The text is one line for the
    operator.

    @ivar refusal: why.
    @ivar height: the height of the block that is refused; 0 where it is none.
    @ivar isSigned: whether validators of this chain have signed what is wrong, so that nobody in
        between can have made it.
    """

    def __init__(
        self, refusal: CopyRefusal, height: int, text: str, *, isSigned: bool = False
    ) -> None:
        super().__init__(text)
        self.refusal = refusal
        self.height = height
        self.isSigned = isSigned


class PartVerifier:
    """
    Verifies parts of the original's chain, block by block.

    @ivar verifier: the state after the last verified block.
    """

    def __init__(
        self,
        genesis: Genesis,
        store: Store,
        verifier: BlockVerifier,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """
        @param checkpoint: a block that the chain must have.
        """
        self.verifier = verifier
        self._genesis = genesis
        self._store = store
        self._checkpoint = checkpoint

    def blocks(self, first: int, stream: bytes) -> Iterator[VerifiedBlock]:
        """
        The verified blocks of a part that the copy does not have yet. Those that it has are
        compared.

        @param first: the height that it has to begin with, at most one above the last verified one.
        @param stream: an export.
        @raise CopyRefused: a block must not be copied. Those before are good, if they are final.
        @raise StreamBroken: it is no export, or not all of it.
        """
        reader = StreamReader(BytesIO(stream))
        begin: Begin = reader.begin()
        if begin.genesis.encoded != self._genesis.encoded:
            raise CopyRefused(CopyRefusal.CHAIN, 0, "it has another chain: another genesis")
        if begin.first != first:
            raise StreamBroken(f"it begins with block {begin.first} instead of {first}")
        height = first - 1
        for record in reader.rest():
            if isinstance(record, End):
                break
            height += 1
            try:
                header = Header.decode(record.header)
                if header.height != height:
                    raise Malformed(f"it says that it is block {header.height}")
                if height > self.verifier.replay.head.height:
                    yield self._verify(header, record)
                else:
                    self._compare(header, record)
            except (Malformed, CertificateInvalid) as error:
                text = f"block {height} does not hold: {error}"
                raise CopyRefused(CopyRefusal.BLOCK, height, text) from None
            except InvalidBlock as error:
                text, isSigned = f"block {height} does not hold: {error}", False
                if self._isAsSigned(header, record):
                    text, isSigned = f"{text}, and validators of this chain have signed it", True
                raise CopyRefused(CopyRefusal.BLOCK, height, text, isSigned=isSigned) from None
        if height != begin.last:
            raise StreamBroken(f"it ends after block {height}, before {begin.last}")
        if not self.verifier.isFinal:
            raise CopyRefused(CopyRefusal.BLOCK, height, f"block {height} has no certificate")

    def _verify(self, header: Header, block: StreamedBlock) -> VerifiedBlock:
        head = self.verifier.replay.head
        if header.parent != head.hash:
            self._refuseOther(header, block, f"follows another block {head.height} than the one")
        self._checkCheckpoint(header)
        return self.verifier.verify(header, block)

    def _compare(self, header: Header, block: StreamedBlock) -> None:
        row = self._store.block(header.height)
        if row is None or row.header != block.header:
            self._refuseOther(header, block, "is another one than that")
        elif not isSameBody(row.body, block.body):
            raise Malformed("its transactions are not those of its header")
        else:
            self._checkCheckpoint(header)

    def _checkCheckpoint(self, header: Header) -> None:
        wanted = self._checkpoint
        if wanted is not None and wanted.height == header.height and wanted.hash != header.hash:
            text = f"block {header.height} is not the one of the checkpoint: {header.hash.hex()}"
            raise CopyRefused(CopyRefusal.CHAIN, header.height, text)

    def _refuseOther(self, header: Header, block: StreamedBlock, what: str) -> None:
        """
        Refuse a block of another history.

        @raise CopyRefused: always.
        """
        text = f"block {header.height} {what} here"
        if self._isFinal(header, block):
            raise CopyRefused(
                CopyRefusal.CONTRADICTION,
                header.height,
                f"{text}, and validators of this chain have signed both: there are two histories",
                isSigned=True,
            )
        raise CopyRefused(
            CopyRefusal.BLOCK, header.height, f"{text}, and no validators have signed it"
        )

    def _isAsSigned(self, header: Header, block: StreamedBlock) -> bool:
        """
        Whether validators have signed the very transactions of a block, and all of them are here:
        then nobody else can have made it one that cannot be executed.
        """
        transactions = decodeBody(block.body, mayBeErased=True)
        isWhole = not any(each.isErased for each in transactions)
        root = merkleRoot([each.hash for each in transactions])
        return isWhole and root == header.transactionRoot and self._isFinal(header, block)

    def _isFinal(self, header: Header, block: StreamedBlock) -> bool:
        """Whether validators that this chain has had have decided a block."""
        rows = self._store.validatorSets()
        sets = [self._genesis.validatorSet, *(ValidatorSet.decode(row.encoded) for row in rows)]
        try:
            certificate = storedCertificate(block.certificate)
            for validators in sets:
                if certificate is not None and validators.hash == header.validators:
                    checkFinal(certificate, header, validators, self._genesis.group)
                    return True
        except (Malformed, CertificateInvalid):
            pass
        return False
