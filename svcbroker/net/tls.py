"""
TLS server endpoints: C{tls:}, C{ssl:} and C{mtls:}, whose certificates may be renewed while they
listen, and the certificates of their clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509 import NameOID
from OpenSSL import SSL
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ServerEndpoint, TCP6ServerEndpoint
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IOpenSSLServerConnectionCreator,
    IProtocolFactory,
    IReactorTime,
    IStreamServerEndpoint,
    IStreamServerEndpointStringParser,
)
from twisted.internet.protocol import connectionDone
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.plugin import IPlugin
from twisted.protocols.tls import BufferingTLSTransport, TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from .budgets import Lane, WorkBudget
from .deferreds import asDeferred
from .pem import (
    UNREADABLE,
    CertificateDirectory,
    CertificateError,
    CertificateFiles,
    CertificateSource,
    ClientAuthorities,
)
from .turns import ReadsInTurn

INTERVAL: Final = 20.0
"""Seconds from one look at the files of certificates to the next."""

Stamp = tuple[tuple[str, int, int, int], ...]
"""Each file's path, modification time in nanoseconds, inode and size; zeros where there is none."""

_log = Logger()


# Certificates of clients


@frozen(kw_only=True)
class PeerCertificate:
    """
    The certificate that a client has authenticated with.

    @ivar commonName: the common name of its subject; empty where it has none, or several.
    @ivar fingerprint: the SHA-256 of the certificate, in 64 lower-case hexadecimal digits.
    """

    commonName: str
    fingerprint: str


def peerCertificate(transport: Any) -> PeerCertificate | None:
    """
    The verified certificate of a client. Carriers ask when the first bytes of the client have
    arrived: at C{connectionMade} the handshake has not begun.

    @param transport: of a server's connection: TCP, TLS, or a wrapper of one, WebSocket included.
    @return: C{None} where the client has shown none, or a malformed one; the endpoint asks for
        none; or the handshake is not over.
    """
    getHandle = getattr(transport, "getHandle", None)
    connection = None if getHandle is None else getHandle()
    if (
        not isinstance(connection, SSL.Connection)
        # Without this OpenSSL would take any certificate.
        or not connection.get_verify_mode() & SSL.VERIFY_PEER
        # Until the client's Finished, it has not proved that it has the private key.
        or connection.get_peer_finished() is None
    ):
        return None
    try:
        certificate = connection.get_peer_certificate(as_cryptography=True)
        if certificate is None:
            return None
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except UNREADABLE:
        # OpenSSL's parser takes more.
        return None
    return PeerCertificate(
        commonName=str(names[0].value) if len(names) == 1 else "",
        fingerprint=certificate.fingerprint(SHA256()).hex(),
    )


# Certificates of servers


@frozen
class Reading:
    """
    The contents that files of certificates have had.

    @ivar stamp: the state of the files, as it was before they were read.
    @ivar options: what they hold; C{None} where they cannot be used.
    @ivar reason: why they cannot be used, in one line.
    @ivar validUntil: when the first certificate expires, in seconds since the epoch.
    """

    stamp: Stamp
    options: CertificateOptions | None
    reason: str = ""
    validUntil: float = 0.0


@implementer(IOpenSSLServerConnectionCreator)
class ServerCertificates:
    """
    The certificates of an endpoint. New connections get those that were read last; connections
    keep theirs.

    @ivar source: their files.
    @ivar validUntil: when the first of them expires, in seconds since the epoch.
    """

    def __init__(self, source: CertificateSource) -> None:
        """
        Read the files.

        @raise CertificateError: they cannot be used.
        @raise OSError: one of them cannot be opened.
        """
        self.source = source
        self._stamp = _stampOf(source)
        self._options = source.load()
        self.validUntil = _validUntil(source)

    def serverConnectionForTLS(self, protocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """See C{IOpenSSLServerConnectionCreator}."""
        return self._options.serverConnectionForTLS(protocol)

    def read(self, isForced: bool) -> Reading | None:
        """
        Read the files again. Blocks; may be called in any thread.

        @param isForced: read them also where they have not changed since.
        @return: C{None} where they were not read.
        """
        stamp = _stampOf(self.source)
        if stamp == self._stamp and not isForced:
            return None
        try:
            return Reading(stamp, self.source.load(), validUntil=_validUntil(self.source))
        except CertificateError as error:
            return Reading(stamp, None, str(error))
        except OSError as error:
            return Reading(stamp, None, f"cannot read {error.filename}: {error.strerror}")

    def use(self, reading: Reading) -> None:
        """Use what was read. Files that cannot be used change nothing until they change."""
        self._stamp = reading.stamp
        if reading.options is not None:
            self._options = reading.options
            self.validUntil = reading.validUntil


def _validUntil(source: CertificateSource) -> float:
    """
    The time at which the first of an endpoint's certificates expires, in seconds since the epoch.

    @raise CertificateError, OSError: they cannot be read.
    """
    return min(chain[0].not_valid_after_utc.timestamp() for chain in source.chains())


def _stampOf(source: CertificateSource) -> Stamp:
    try:
        return tuple(_fileStamp(path) for path in source.files())
    except OSError as error:
        return ((str(error.filename), 0, 0, 0),)


def _fileStamp(path: Path) -> tuple[str, int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), status.st_mtime_ns, status.st_ino, status.st_size)


class CertificateReloader:
    """
    Reads the certificates of endpoints again when their files have changed.
    """

    def __init__(
        self,
        certificates: Mapping[str, ServerCertificates],
        clock: IReactorTime,
        runInThread: Callable[..., Deferred[Any]],
    ) -> None:
        """
        @param certificates: those of each endpoint, by its name in the log.
        @param runInThread: runs one blocking call after the other.
        """
        self._certificates = certificates
        self._runInThread = runInThread
        self._loop = LoopingCall(self._look)
        self._loop.clock = clock
        self._looped: Deferred[Any] | None = None

    def start(self) -> None:
        """Look at the files every L{INTERVAL} seconds."""
        self._looped = self._loop.start(INTERVAL, now=False)

    def stop(self) -> Deferred[Any]:
        """Stop looking. Fires when no file is being read."""
        assert self._looped is not None
        self._loop.stop()
        return self._looped

    def reload(self) -> Deferred[Sequence[str]]:
        """
        Read all files now.

        @return: fires with a line for each endpoint that keeps its certificates, because its files
            cannot be used. Does not fail.
        """
        return self._look(isForced=True)

    @asDeferred
    async def _look(self, isForced: bool = False) -> Sequence[str]:
        lines: list[str] = []
        for name, certificates in self._certificates.items():
            try:
                reading = await self._runInThread(certificates.read, isForced)
            except Exception:
                _log.failure("The certificates of {name} were not looked at", name=name)
                continue
            if reading is None:
                continue
            certificates.use(reading)
            if reading.options is not None:
                _log.info("The certificates of {name} were read again", name=name)
            else:
                line = f"The certificates of {name} stay as they were: {reading.reason}"
                _log.error("{line}", line=line)
                lines.append(line)
        return lines


# Endpoints


class TLSConnection(BufferingTLSTransport):
    """
    The server's end of a TLS connection. Handshakes share the time of a turn of the reactor with
    all other work. When it is lost, nothing of it is left to the garbage collector, as would be of
    Twisted's own.
    """

    factory: TLSFactory
    _reads: ReadsInTurn | None = None
    _lane: Lane | None = None

    def makeConnection(self, transport: Any) -> None:
        """See C{IProtocol}."""
        if self.factory.work is not None:
            lane = self._lane = self.factory.work.lane()
            self._reads = ReadsInTurn(
                *(partial(lane.begin, False), partial(lane.turn, False)),
                *(self.dataReceived, partial(_setReading, transport)),
            )
        super().makeConnection(transport)

    def dataReceived(self, bytes: bytes) -> None:
        """See C{IProtocol}."""
        if self._reads is not None and not self._handshakeDone:
            if self._reads.mayHandle(bytes):
                super().dataReceived(bytes)
                assert self._lane is not None
                self._lane.end()
        else:
            super().dataReceived(bytes)

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        if reason is not None:
            # The frames of an error of OpenSSL have it as a local, and this.
            reason.cleanFailure()
        super()._tlsShutdownFinished(reason)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """See C{IProtocol}."""
        if self._reads is not None:
            self._reads.stop()
        super().connectionLost(reason)
        self._producer = None


class TLSFactory(TLSMemoryBIOFactory):
    """
    Makes the servers' ends of TLS connections.

    @ivar work: the time that handshakes share with other work; C{None} where they need not.
    """

    protocol = TLSConnection
    work: WorkBudget | None = None

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """See C{IProtocolFactory}: C{None} where the wrapped factory accepts no connection."""
        inner = self.wrappedFactory.buildProtocol(addr)
        return None if inner is None else self.protocol(self, inner)


def _setReading(transport: Any, isOn: bool) -> None:
    (transport.resumeProducing if isOn else transport.pauseProducing)()


@implementer(IStreamServerEndpoint)
class TLSServerEndpoint:
    """
    TLS over another endpoint.

    @ivar certificates: the certificates that it serves.
    @ivar endpoint: the other endpoint.
    @ivar work: the time that handshakes share with other work; C{None} where they need not.
    """

    work: WorkBudget | None = None

    def __init__(
        self, endpoint: IStreamServerEndpoint, certificates: ServerCertificates, clock: IReactorTime
    ) -> None:
        self.certificates = certificates
        self.endpoint = endpoint
        self._clock = clock

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """See C{IStreamServerEndpoint}."""
        factory = TLSFactory(self.certificates, False, protocolFactory, clock=self._clock)
        factory.work = self.work
        listening: Deferred[IListeningPort] = self.endpoint.listen(factory)
        return listening


def sslEndpoint(
    reactor: Any,
    port: str,
    privateKey: str = "server.pem",
    certKey: str | None = None,
    sslmethod: str | None = None,
    interface: str = "",
    backlog: str = "50",
    extraCertChain: str | None = None,
    dhParameters: str | None = None,
) -> TLSServerEndpoint:
    """
    An C{ssl:} endpoint. The parameters are those of Twisted's; intermediate certificates may also
    follow the certificate in its file.
    """
    if sslmethod is not None and not (sslmethod.endswith("_METHOD") and hasattr(SSL, sslmethod)):
        raise ValueError(f"sslmethod: OpenSSL has no {sslmethod!r}")
    source = CertificateFiles(
        privateKey=Path(privateKey),
        certKey=Path(privateKey if certKey is None else certKey),
        extraCertChain=None if extraCertChain is None else Path(extraCertChain),
        dhParameters=None if dhParameters is None else Path(dhParameters),
        method=None if sslmethod is None else getattr(SSL, sslmethod),
    )
    endpoint = TCP4ServerEndpoint(reactor, int(port), int(backlog), interface)
    return TLSServerEndpoint(endpoint, ServerCertificates(source), reactor)


def tlsEndpoint(
    reactor: Any, path: str, port: str = "443", backlog: str = "50", interface: str = "::"
) -> TLSServerEndpoint:
    """
    A C{tls:} endpoint. The parameters are those of Twisted's.
    """
    endpoint = TCP6ServerEndpoint(reactor, int(port), int(backlog), interface)
    source = CertificateDirectory(path=Path(path))
    return TLSServerEndpoint(endpoint, ServerCertificates(source), reactor)


def mtlsEndpoint(
    reactor: Any,
    port: str,
    *,
    certs: str,
    clients: str,
    require: str = "no",
    interface: str = "",
    backlog: str = "50",
) -> TLSServerEndpoint:
    """
    An C{mtls:} endpoint: TLS that asks clients for a certificate.

    @param certs: a directory of PEM files, as C{tls:} has it.
    @param clients: a PEM file with the certificates of the authorities of clients.
    @param require: C{yes} refuses clients without a certificate in the handshake; C{no} verifies
        those that are shown.
    """
    if require not in {"yes", "no"}:
        raise ValueError(f"require is yes or no, not {require!r}")
    source = CertificateDirectory(
        path=Path(certs), clients=ClientAuthorities(Path(clients), require == "yes")
    )
    # The interface may also be an IPv6 address.
    endpoint = TCP4ServerEndpoint(
        reactor, _number("port", port, 65535), _number("backlog", backlog, 2**31 - 1), interface
    )
    return TLSServerEndpoint(endpoint, ServerCertificates(source), reactor)


def _number(name: str, text: str, maximum: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= maximum):
        raise ValueError(f"{name} is a number from 0 to {maximum}, not {text!r}")
    return int(text)


_MTLS: Final = (
    "mtls:PORT:certs=DIRECTORY:clients=FILE[:require=yes|no][:interface=ADDRESS][:backlog=NUMBER]"
)


@implementer(IPlugin, IStreamServerEndpointStringParser)
class MutualTLSParser:
    """
    Reads the descriptions of C{mtls:} endpoints, for C{serverFromString}.
    """

    prefix = "mtls"

    def parseStreamServer(self, reactor: Any, *args: Any, **kwargs: Any) -> IStreamServerEndpoint:
        """
        See C{IStreamServerEndpointStringParser}.

        @raise ValueError: it cannot be used. The message says why in one line.
        """
        try:
            return mtlsEndpoint(reactor, *args, **kwargs)
        except TypeError as error:
            reason = str(error).partition("() ")[2]
            raise ValueError(f"{reason}; the parameters are {_MTLS}") from None
