"""
The endpoints: whether they can be listened on, who listens there, and who can reach them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import Any

from attrs import frozen

from ..net.proxied import ProxiedEndpoint
from ..net.tls import TLSServerEndpoint
from ._findings import Finding, good, problem, warning


@frozen(kw_only=True)
class EndpointFacts:
    """
    What is known of an endpoint.

    @ivar name: what is served there, such as C{http}.
    @ivar text: the endpoint as the operator wrote it.
    @ivar isLocal: whether only programs on this machine reach it.
    @ivar hasTLS: whether it speaks TLS.
    @ivar isInherited: whether systemd opens the socket, so that nothing else is known of it.
    @ivar bindError: the C{errno} of trying to bind its address; 0 where it can be bound; C{None}
        where that was not tried.
    @ivar listener: the number of the process that listens there; C{None} where none is seen.
    @ivar listenerName: what that process is called.
    @ivar isBroker: whether a svcbroker answers C{/healthz} there; C{None} where it was not asked.
    """

    name: str
    text: str
    isLocal: bool = True
    hasTLS: bool = False
    isInherited: bool = False
    bindError: int | None = None
    listener: int | None = None
    listenerName: str = ""
    isBroker: bool | None = None

    @property
    def isUsed(self) -> bool:
        """Whether some process listens there."""
        return self.bindError == errno.EADDRINUSE


def checkEndpoint(
    facts: EndpointFacts, daemon: int | None, *, isDaemonKnown: bool = True, hasAccounts: bool
) -> Iterator[Finding]:
    """
    Whether the daemon listens or can listen on an endpoint, and whether credentials are safe on
    the way to it.

    @param daemon: the number of the process that holds the data directory; C{None} where none
        does.
    @param isDaemonKnown: whether this user may look who holds it.
    """
    if facts.isUsed and not isDaemonKnown:
        who = "a svcbroker" if facts.isBroker else "a process"
        yield good(facts.name, f"{who} listens on {facts.text}; whether it is this one is unknown")
    else:
        yield _checkListening(facts, daemon)
    if not facts.isLocal and not facts.hasTLS and hasAccounts:
        yield warning(
            facts.name,
            f"{facts.text} is reached from other machines, without TLS",
            "passwords, tokens and events can be read and changed on the way, unless a proxy on "
            "the same network segment ends TLS",
            f'{facts.name} = "tls:/etc/svcbroker/tls:PORT" (docs/tls), or listen on loopback '
            "behind a proxy (docs/reverse-proxy)",
        )


def _checkListening(facts: EndpointFacts, daemon: int | None) -> Finding:
    name, text = facts.name, facts.text
    if facts.isInherited:
        return good(name, f"systemd opens the socket of {text}: systemctl list-sockets shows it")
    if facts.isUsed:
        return _checkListener(facts, daemon)
    if daemon is not None and facts.bindError == 0:
        return warning(
            name,
            f"nothing listens on {text}, although the daemon runs (process {daemon})",
            "it was started with other settings, or is still starting or stopping",
            "give the options it was started with; or restart it, to have it use these",
        )
    if not facts.bindError:
        return good(name, f"{text} can be listened on" if facts.bindError == 0 else text)
    reason = os.strerror(facts.bindError)
    if facts.bindError == errno.EACCES:
        return problem(
            name,
            f"this user may not listen on {text}: {reason}",
            "the broker does not start, unless it runs as another user",
            "choose a port from 1024 on, or AmbientCapabilities=CAP_NET_BIND_SERVICE in systemd's "
            "unit",
        )
    return problem(
        name,
        f"{text} cannot be listened on: {reason}",
        "the broker does not start",
        "give an address of this machine: ip address",
    )


def _checkListener(facts: EndpointFacts, daemon: int | None) -> Finding:
    name, text = facts.name, facts.text
    if facts.listener is not None and facts.listener == daemon:
        answers = ", and answers" if facts.isBroker else ""
        if facts.isBroker is False:
            return problem(
                name,
                f"the daemon (process {daemon}) listens on {text}, and does not answer /healthz",
                "it hangs, or is so busy that clients give up",
                "look at its log; then restart it",
            )
        return good(name, f"the daemon (process {daemon}) listens on {text}{answers}")
    if daemon is not None and facts.listener is None:
        return good(name, f"{text} is listened on by a process that this user may not look at")
    who = "another svcbroker" if facts.isBroker else "another program"
    if facts.listener is not None:
        who += f", process {facts.listener} ({facts.listenerName}),"
    return problem(
        name,
        f"{who} listens on {text}",
        "the broker with this data directory does not start",
        f"ss -ltnp shows it; stop it, or give another port: --{name}",
    )


def withoutWrappers(endpoint: Any) -> tuple[Any, bool]:
    """What an endpoint listens by, and whether clients have to come through a proxy."""
    isProxied = isinstance(endpoint, ProxiedEndpoint)
    while isinstance(endpoint, ProxiedEndpoint | TLSServerEndpoint):
        endpoint = endpoint.endpoint
    return endpoint, isProxied
