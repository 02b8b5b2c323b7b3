"""
Listening on sockets that systemd has opened: C{systemd:name=http}, C{systemd:index=0}.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from attrs import evolve, frozen
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.endpoints import _SystemdParser
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IAddress,
    IListeningPort,
    IProtocolFactory,
    IStreamServerEndpoint,
)
from twisted.internet.unix import Port as UNIXPort
from zope.interface import implementer

_DOMAINS: Final[Mapping[int, str]] = {
    socket.AF_INET: "INET",
    socket.AF_INET6: "INET6",
    socket.AF_UNIX: "UNIX",
}


class InheritedSockets(Protocol):
    """The listening sockets of this process, as C{twisted.python.systemd.ListenFDs} has them."""

    def inheritedDescriptors(self) -> Sequence[int]: ...

    def inheritedNamedDescriptors(self) -> Mapping[str, int]: ...


@implementer(IStreamServerEndpoint)
@frozen
class InheritedEndpoint:
    """
    Listens on a socket that systemd has opened.

    Twisted's own endpoint of this kind does not know where the socket listens. It lets everybody
    write to a UNIX socket, shuts that down at the end and deletes its file, so that no client
    reaches the next daemon.

    @ivar reactor: the reactor.
    @ivar descriptor: the number of the socket.
    @ivar family: its address family.
    @ivar address: where it listens; C{None} where that is not known.
    @ivar reason: why it cannot be listened on, in one line; empty where it can.
    """

    reactor: Any
    descriptor: int = -1
    family: int = socket.AF_UNSPEC
    address: IAddress | None = None
    reason: str = ""

    def listen(self, protocolFactory: IProtocolFactory) -> Deferred[IListeningPort]:
        """See C{IStreamServerEndpoint}. Works once."""
        if self.reason:
            error: Any = CannotListenError
            return fail(error(None, None, self.reason))
        os.set_blocking(self.descriptor, False)
        port: Any
        if self.family == socket.AF_UNIX:
            unixPort: Any = UNIXPort
            port = unixPort._fromListeningDescriptor(self.reactor, self.descriptor, protocolFactory)
            # As that of an abstract socket, so that Twisted leaves the file alone.
            port._bindPath = b"\0" + port._bindPath
            port._shouldShutdown = False
            port.backlog = socket.SOMAXCONN
            port.startListening()
        else:
            port = self.reactor.adoptStreamPort(self.descriptor, self.family, protocolFactory)
        os.close(self.descriptor)
        listening: IListeningPort = port
        return succeed(listening)


def inheritedEndpoint(
    reactor: Any,
    domain: str = "",
    index: str = "",
    name: str = "",
    *,
    sockets: InheritedSockets = _SystemdParser._sddaemon,  # It was given the only copy.
) -> InheritedEndpoint:
    """
    A C{systemd:} endpoint. A socket that is not there, or cannot be listened on, is found when it
    is listened on: C{--check} runs without the sockets.

    @param domain: C{INET}, C{INET6} or C{UNIX}: what the socket must be; empty for any.
    @param index: the place of the socket among those that were passed, from 0.
    @param name: its name: C{FileDescriptorName} of the socket unit.
    @raise ValueError: the description cannot be used.
    """
    if domain not in {"", *_DOMAINS.values()}:
        raise ValueError(f"domain is one of {', '.join(_DOMAINS.values())}, not {domain!r}")
    if bool(index) == bool(name):
        raise ValueError("a socket of systemd has either a name or an index")
    named, indexed = sockets.inheritedNamedDescriptors(), sockets.inheritedDescriptors()
    place = int(index or -1)
    descriptor = named.get(name, -1)
    if 0 <= place < len(indexed):
        descriptor = indexed[place]
    endpoint = InheritedEndpoint(reactor, descriptor)
    if descriptor < 0:
        passed = ", ".join(named) or f"{len(indexed)} without names" if indexed else "none"
        return evolve(endpoint, reason=f"systemd has not passed this socket, but {passed}")
    try:
        family, address = _examine(descriptor)
    except OSError as error:
        return evolve(endpoint, reason=f"systemd has passed no socket: {error.strerror}")
    if address is None:
        return evolve(endpoint, reason="the socket of systemd does not listen for streams")
    if domain not in {"", _DOMAINS[family]}:
        reason = f"the socket of systemd is of {_DOMAINS[family]}, not {domain}"
        return evolve(endpoint, reason=reason)
    return evolve(endpoint, family=family, address=address)


def _examine(descriptor: int) -> tuple[int, IAddress | None]:
    """
    The family and the address of a socket. The address is C{None} where no stream server can listen
    on the socket.

    @raise OSError: it is no socket.
    """
    with socket.socket(fileno=os.dup(descriptor)) as inherited:
        family, name = inherited.family, inherited.getsockname()
        isListening = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        address: IAddress | None = None
        if inherited.type == socket.SOCK_STREAM and isListening:
            if family == socket.AF_INET:
                address = IPv4Address("TCP", *name)
            elif family == socket.AF_INET6:
                address = IPv6Address("TCP", *name)
            elif family == socket.AF_UNIX:
                address = UNIXAddress(name)
    return family, address
