"""
Listening ports: bound before the ledgers start, accepting once the carriers have started.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Any, Final
from weakref import ReferenceType, ref

from attrs import frozen
from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, succeed
from twisted.internet.endpoints import (
    TCP4ServerEndpoint,
    TCP6ServerEndpoint,
    UNIXServerEndpoint,
    _parse,
    serverFromString,
)
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    ILoggingContext,
    IProtocol,
    IProtocolFactory,
    IStreamServerEndpoint,
)
from twisted.logger import Logger
from zope.interface import directlyProvides, implementer, providedBy

from ..net.addresses import addressText, isLoopback, networkOf
from ..net.budgets import TLS_WEIGHT, Budgets, Strangers
from ..net.listeners import InheritedEndpoint, ProxiedEndpoint, inheritedEndpoint
from ..net.pem import CertificateError
from ..net.tls import ServerCertificates, TLSServerEndpoint, sslEndpoint, tlsEndpoint

_log = Logger()

HTTP: Final = "http"
"""The name of the port of HTTP."""

BACKLOG: Final = 1024
"""
The most connections that the kernel holds until they are accepted. Twisted's 50 are used up at once
when many clients connect together, and a client that finds none left tries again a second later.
"""

KEEPALIVE: Final[Mapping[str, int]] = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""
TCP keepalive of accepted connections: the seconds of silence before the first probe, the seconds
between two, and the number without an answer after which the connection is lost. A client whose
machine has died closes nothing, nor does one that was killed while it had more to send than the
broker has read: its calls would go on, and their answers would go nowhere.
"""

RECEIVED: Final = 256 * 1024
"""
The bytes of an accepted connection that the kernel keeps until they are read. Left to itself, it
takes 6 MiB or more for each. What clients have sent that have gone is read all the same: with 64 of
them that had sent small packets, the broker was at work for half a minute.
"""

TLS_TYPES: Final = ("ssl", "tls", "mtls")
"""The types of endpoints that speak TLS."""

_OWN: Final[Mapping[str, Callable[..., IStreamServerEndpoint]]] = {
    "ssl": sslEndpoint,
    "tls": tlsEndpoint,
    "systemd": inheritedEndpoint,
}
"""
The types of endpoints that are made here: Twisted's never read the files of certificates again, and
do not know where a socket of systemd listens.
"""

_WITH_BACKLOG: Final = ("tcp", "tcp6", "unix", *TLS_TYPES)
_NO_NUMBER = re.compile(r"invalid literal for int\(\) with base 10: (.*)")
_HINT: Final = (
    "an endpoint is, for example, tcp:8080:interface=127.0.0.1; a colon inside of a value is "
    "written \\:"
)


def serverEndpoint(reactor: Any, text: str) -> IStreamServerEndpoint:
    """
    The endpoint of a description, with a backlog of L{BACKLOG} where it says none and has one.

    @raise ValueError: it cannot be used. The message says why in one line.
    """
    try:
        return _parseEndpoint(reactor, text)
    except Exception as error:
        raise ValueError(_explain(error)) from error


def _explain(error: Exception) -> str:
    """
    Explain why a description cannot be used. Each type of endpoint, plugins included, raises
    exceptions of its own.
    """
    reason = " ".join(str(error).split())
    if isinstance(error, CertificateError | MemoryError):
        # pyOpenSSL has no memory where the process may have none that is writable and executable.
        return reason
    if isinstance(error, OSError):
        return f"{error.strerror}: {error.filename}"
    if isinstance(error, ValueError):
        noNumber = _NO_NUMBER.fullmatch(reason)
        return f"{noNumber[1]} is not a number; {_HINT}" if noNumber else f"{reason}; {_HINT}"
    if isinstance(error, TypeError):
        return f"{reason.partition('() ')[2] or reason}; {_HINT}"
    # Parsers run out of pieces in the middle of a description.
    return f"it cannot be read to its end; {_HINT}"


def _parseEndpoint(reactor: Any, text: str) -> IStreamServerEndpoint:
    kind, colon, rest = text.partition(":")
    if kind == "haproxy":
        return ProxiedEndpoint(_parseEndpoint(reactor, rest))
    if kind in _WITH_BACKLOG:
        # Comes first, as a later one by name wins. One by its place is refused beside it.
        with suppress(TypeError):
            return _makeEndpoint(reactor, f"{kind}:backlog={BACKLOG}{colon}{rest}")
    return _makeEndpoint(reactor, text)


def _makeEndpoint(reactor: Any, text: str) -> IStreamServerEndpoint:
    make = _OWN.get(text.partition(":")[0])
    endpoint: IStreamServerEndpoint
    if make is None:
        endpoint = serverFromString(reactor, text)
    else:
        (_, *values), named = _parse(text)
        endpoint = make(reactor, *values, **named)
    return endpoint


@frozen(kw_only=True)
class PortPlan:
    """
    An endpoint to listen on.

    @ivar name: what is served there; also the name of the setting.
    @ivar endpoint: where to listen.
    @ivar text: the endpoint as the operator wrote it.
    """

    name: str
    endpoint: IStreamServerEndpoint
    text: str

    @property
    def isLocal(self) -> bool:
        """
        Whether only programs on this machine reach it. A proxy passes clients from elsewhere on,
        and where an endpoint of another type listens is not known: neither is local.
        """
        endpoint = self.endpoint
        if isinstance(endpoint, TLSServerEndpoint):
            endpoint = endpoint.endpoint
        if isinstance(endpoint, InheritedEndpoint):
            # A socket that cannot be listened on accepts no clients; binding it tells the reason.
            return bool(endpoint.reason) or _isLocalAddress(endpoint.address)
        if isinstance(endpoint, UNIXServerEndpoint):
            return True
        if not isinstance(endpoint, TCP4ServerEndpoint | TCP6ServerEndpoint):
            return False
        return isLoopback(endpoint._interface)

    @property
    def certificates(self) -> ServerCertificates | None:
        """The certificates that can be renewed while it listens; C{None} where there are none."""
        return getattr(self._unproxied, "certificates", None)

    @property
    def tls(self) -> TLSServerEndpoint | None:
        """The endpoint that speaks TLS; C{None} where none does."""
        endpoint = self._unproxied
        return endpoint if isinstance(endpoint, TLSServerEndpoint) else None

    @property
    def inheritedSocket(self) -> int | None:
        """The number of the socket that systemd has opened; C{None} where it has opened none."""
        endpoint = self._unproxied
        if isinstance(endpoint, InheritedEndpoint) and not endpoint.reason:
            return endpoint.descriptor
        return None

    @property
    def unwrapped(self) -> IStreamServerEndpoint:
        """The endpoint that listens, without what stands before it: a proxy, or TLS."""
        endpoint: Any = self._unproxied
        inner: IStreamServerEndpoint
        inner = endpoint.endpoint if isinstance(endpoint, TLSServerEndpoint) else endpoint
        return inner

    @property
    def _unproxied(self) -> IStreamServerEndpoint:
        endpoint: Any = self.endpoint
        while isinstance(endpoint, ProxiedEndpoint):
            endpoint = endpoint.endpoint
        inner: IStreamServerEndpoint = endpoint
        return inner


def _isLocalAddress(address: Any) -> bool:
    if isinstance(address, IPv4Address | IPv6Address):
        return isLoopback(address.host)
    return isinstance(address, UNIXAddress)


def listenRefusal(plan: PortPlan, reason: str) -> str:
    """The refusal to start where a port cannot be listened on, in a line."""
    return (
        f"{plan.name}: cannot listen on {plan.text}: {reason}: give an address of this machine and "
        f"a port that is free, or an empty --{plan.name} to switch it off"
    )


def findBindError(plan: PortPlan) -> int | None:
    """
    Try whether a port could be listened on.

    @return: the C{errno}; 0 where it could be; C{None} where only listening can tell.
    """
    endpoint: Any = plan.unwrapped
    if isinstance(endpoint, UNIXServerEndpoint):
        return tryConnect(str(endpoint._address))
    if isinstance(endpoint, TCP4ServerEndpoint | TCP6ServerEndpoint) and endpoint._port:
        return tryBind(endpoint._interface, endpoint._port)
    return None


def tryBind(host: str, port: int) -> int:
    """
    Try to bind an address: 0, or the C{errno}. The socket does not listen, so a daemon that starts
    at the same moment is not in its way.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind((host, port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def tryConnect(path: str) -> int:
    """
    Try whether a UNIX socket could be made: 0, or the C{errno}. One that nobody listens on is
    removed by who makes it.
    """
    folder = os.path.dirname(path) or "."
    if not os.access(folder, os.W_OK | os.X_OK):
        return errno.EACCES if os.path.exists(folder) else errno.ENOENT
    if os.path.lexists(path) and not stat.S_ISSOCK(os.lstat(path).st_mode):
        return errno.EADDRINUSE
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
            probe.settimeout(1.0)
            probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return 0
    except OSError as error:
        return error.errno or errno.EIO
    return errno.EADDRINUSE


@implementer(IProtocolFactory, ILoggingContext)
class GatedFactory:
    """
    A protocol factory that refuses connections until it is given a carrier's factory. From then
    on it provides what that factory provides: TLS asks it for C{IProtocolNegotiationFactory}.
    """

    def __init__(
        self,
        name: str,
        strangers: Strangers | None = None,
        isProxied: bool = False,
        weight: int = 1,
    ) -> None:
        """
        @param name: what is served.
        @param strangers: bounds the connections whose clients are not known yet.
        @param isProxied: whether they all come from the address of a proxy.
        @param weight: what each counts there.
        """
        self._name = name
        self._isProxied = isProxied
        self._weight = weight
        self._strangers = strangers
        self._factory: Any = None

    def logPrefix(self) -> str:
        """The name of the port in the log."""
        return self._name.upper()

    def doStart(self) -> None:
        """The port listens. The carrier's factory starts with L{open}."""

    def doStop(self) -> None:
        """The port no longer listens. The carrier is still answering."""

    def open(self, factory: Any) -> None:
        """Start C{factory}, and have it make the protocols from now on."""
        factory.doStart()
        self._factory = factory
        directlyProvides(self, providedBy(factory))

    def close(self) -> None:
        """Stop the carrier's factory, if there was one."""
        factory, self._factory = self._factory, None
        directlyProvides(self)
        if factory is not None:
            factory.doStop()

    def buildProtocol(self, addr: IAddress) -> IProtocol | None:
        """See C{IProtocolFactory}."""
        if self._factory is None:
            return None
        protocol: Any = self._factory.buildProtocol(addr)
        if self._strangers is not None and hasattr(protocol, "stranger"):
            lane = "" if self._isProxied else networkOf(getattr(addr, "host", ""))
            abort = partial(_abort, ref(protocol))
            protocol.stranger = self._strangers.admit(lane, abort, self._weight)
            if protocol.stranger is None:
                return None
        made: IProtocol | None = protocol
        return made

    def __getattr__(self, name: str) -> Any:
        # The methods of the other interfaces of the carrier's factory.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._factory, name)


def _abort(protocol: ReferenceType[Any]) -> None:
    transport = getattr(protocol(), "transport", None)
    if transport is not None:
        transport.abortConnection()


class Port:
    """
    A listening port of the daemon.

    @ivar plan: where it listens.
    @ivar factory: makes the protocols of its connections.
    @ivar address: the address that was bound, once that is known.
    """

    def __init__(self, plan: PortPlan, budgets: Budgets) -> None:
        """
        @param budgets: what all connections share.
        """
        self.plan = plan
        isProxied = isinstance(plan.endpoint, ProxiedEndpoint)
        weight = 1 if plan.tls is None else TLS_WEIGHT
        self.factory = GatedFactory(plan.name, budgets.strangers, isProxied, weight)
        if plan.tls is not None:
            plan.tls.work = budgets.work
        self.address = ""
        self._listening: Deferred[IListeningPort] | None = None

    def bind(self) -> Deferred[IListeningPort]:
        """
        Bind it. Clients that connect wait in the kernel's queue.
        """
        self._listening = self.plan.endpoint.listen(self.factory)
        self._listening.addCallback(_prepare)
        return self._listening

    async def bound(self) -> None:
        """Wait until it is bound."""
        listening, self._listening = self._listening, None
        if listening is not None:
            port = await listening
            self._listening = succeed(port)
            self.address = addressText(port.getHost())

    def resume(self) -> None:
        """Accept the clients that wait. The factory is open."""
        if self._listening is not None:
            self._listening.addCallback(_resume)

    def stop(self) -> Deferred[Any]:
        """Stop listening; fires when that is done. The factory stays open."""
        listening, self._listening = self._listening, None
        if listening is None:
            return succeed(None)
        return listening.addCallback(lambda port: port.stopListening())

    def abandon(self) -> None:
        """
        Stop where it still listens, since the start failed. Does not wait, so that a failure
        before the reactor runs can be raised then.
        """
        self.stop().addErrback(lambda failure: _log.failure("A port did not close", failure))


def _prepare(port: IListeningPort) -> IListeningPort:
    # Clients that connect now wait in the kernel's queue. A port of another type has the gate.
    if isinstance(port, FileDescriptor):
        port.stopReading()
    listening = getattr(port, "socket", None)
    if isinstance(listening, socket.socket) and listening.family != socket.AF_UNIX:
        # Connections that are accepted have the options of the socket that listens.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)
        for name, value in KEEPALIVE.items():
            if hasattr(socket, name):
                listening.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return port


def _resume(port: IListeningPort) -> IListeningPort:
    if isinstance(port, FileDescriptor):
        port.startReading()
    return port
