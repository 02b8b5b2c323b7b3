"""
Checks of endpoints: the program that listens, who can reach it, and its certificates.
"""

from __future__ import annotations

import errno
import json
import os
import ssl
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import httpx
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.x509 import (
    AuthorityInformationAccess,
    Certificate,
    DNSName,
    ExtensionNotFound,
    IPAddress,
    Name,
    SubjectAlternativeName,
    load_pem_x509_certificates,
)

from ...files import readFile
from ...net.findings import DAY, Finding, Level, date, good, listed, problem, span, warning
from ...net.listeners import ProxiedEndpoint
from ...net.tls import TLSServerEndpoint


@frozen(kw_only=True)
class EndpointFacts:
    """
    Facts about an endpoint.

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
    Check whether the daemon listens or can listen on an endpoint, and whether credentials are
    safe on the way to it.

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
    """Unwrap an endpoint: by what it listens, and whether clients have to come through a proxy."""
    isProxied = isinstance(endpoint, ProxiedEndpoint)
    while isinstance(endpoint, ProxiedEndpoint | TLSServerEndpoint):
        endpoint = endpoint.endpoint
    return endpoint, isProxied


_CERTIFICATE_ENDS_SOON = 14 * DAY
"""Seconds before the end of a certificate at which it should have been renewed."""

_SMALL_KEY = 2048
_WEAK = ("md5", "sha1")


@frozen(kw_only=True)
class CertificateFacts:
    """
    Facts about an endpoint's certificates.

    @ivar endpoint: the name of the endpoint.
    @ivar place: their file or directory.
    @ivar chains: each certificate, with the intermediate ones that are sent with it.
    @ivar names: names and addresses by which clients reach the endpoint, as far as known.
    @ivar readableKeys: files of private keys that every user of this machine may read.
    @ivar isRoot: whether clients of the web know an authority.
    """

    endpoint: str
    place: Path
    chains: Sequence[Sequence[Certificate]]
    names: Sequence[str] = ()
    readableKeys: Sequence[Path] = ()
    isRoot: Callable[[Name], bool] = lambda name: False


def checkCertificates(facts: CertificateFacts, now: float) -> Iterator[Finding]:
    """Check whether clients accept the certificates of an endpoint, now and soon."""
    found = [
        *(each for chain in facts.chains for each in _checkChain(facts, chain, now)),
        *_checkNames(facts),
        *(
            problem(
                facts.endpoint,
                f"every user of this machine may read the private key in {path}",
                "any of them can pretend to be this broker",
                f"chmod o= {path}; if others use this machine, get a new key and certificate",
            )
            for path in facts.readableKeys
        ),
    ]
    if found:
        yield from found
        return
    ends = min(chain[0].not_valid_after_utc.timestamp() for chain in facts.chains)
    names = [name for chain in facts.chains for name in _namesOf(chain[0])]
    yield good(facts.endpoint, f"the certificate of {listed(names)} is good until {date(ends)}")


def _checkChain(
    facts: CertificateFacts, chain: Sequence[Certificate], now: float
) -> Iterator[Finding]:
    leaf = chain[0]
    for each in chain:
        yield from _checkTime(facts, each, now)
    what = f"the certificate of {listed(list(_namesOf(leaf)))} in {facts.place}"
    last = chain[-1]
    if leaf.issuer == leaf.subject:
        yield warning(
            facts.endpoint,
            f"{what} has signed itself",
            "clients refuse it unless they were given it",
            "have it signed: svcbroker admin certificates, for trying; an authority, for good",
        )
    elif last.issuer != last.subject and _namesIssuer(last) and not facts.isRoot(last.issuer):
        yield warning(
            facts.endpoint,
            f"{what} is sent without the certificate of {last.issuer.rfc4514_string()}",
            "clients that do not have that by chance refuse it; browsers often do, programs do not",
            "append the intermediate certificates to the file (fullchain.pem of most clients of "
            "ACME)",
        )
    key, hash = leaf.public_key(), leaf.signature_hash_algorithm
    if isinstance(key, RSAPublicKey) and key.key_size < _SMALL_KEY:
        yield _weak(facts, what, f"a key of {key.key_size} bits")
    if hash is not None and hash.name in _WEAK and leaf.issuer != leaf.subject:
        yield _weak(facts, what, f"a signature with {hash.name.upper()}")


def _weak(facts: CertificateFacts, what: str, reason: str) -> Finding:
    return warning(
        facts.endpoint,
        f"{what} has {reason}",
        "OpenSSL 3 and browsers refuse it",
        "get one with a key of P-256 or of 2048 bits of RSA at least, signed with SHA-256",
    )


def _checkTime(facts: CertificateFacts, each: Certificate, now: float) -> Iterator[Finding]:
    begins, ends = each.not_valid_before_utc.timestamp(), each.not_valid_after_utc.timestamp()
    what = f"the certificate of {listed(list(_namesOf(each)))} in {facts.place}"
    renew = (
        "renew it; a running daemon reads the new files within 20 seconds (svcbroker admin reload)"
    )
    if ends <= now:
        yield problem(
            facts.endpoint,
            f"{what} has ended on {date(ends)}, {span(now - ends)} ago",
            "clients refuse to connect",
            renew,
        )
    elif begins > now:
        yield problem(
            facts.endpoint,
            f"{what} is valid from {date(begins)} on only",
            "clients refuse to connect until then",
            "look at the clock of this machine (timedatectl), or wait",
        )
    elif ends - now < _CERTIFICATE_ENDS_SOON:
        yield warning(
            facts.endpoint,
            f"{what} ends on {date(ends)}, in {span(ends - now)}",
            "clients refuse to connect from then on; whatever renews it has not",
            f"{renew}; look at what renews it: systemctl list-timers",
        )


def _checkNames(facts: CertificateFacts) -> Iterator[Finding]:
    known = {name for chain in facts.chains for name in _namesOf(chain[0])}
    missing = [name for name in facts.names if not _isCovered(name, known)]
    if missing:
        yield warning(
            facts.endpoint,
            f"the certificates in {facts.place} are for {listed(sorted(known))}, and not for "
            f"{listed(missing)}",
            "clients that connect by that name refuse it",
            "get a certificate for the name, or correct --advertise and --host-name",
        )


def _isCovered(name: str, known: set[str]) -> bool:
    return name in known or "*." + name.partition(".")[2] in known


def _namesOf(certificate: Certificate) -> Sequence[str]:
    """The names and addresses that a certificate is for; its subject where it says none."""
    try:
        found = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except (ExtensionNotFound, ValueError):
        return [certificate.subject.rfc4514_string()]
    names = [each.lower() for each in found.get_values_for_type(DNSName)]
    return [*names, *map(str, found.get_values_for_type(IPAddress))]


def _namesIssuer(certificate: Certificate) -> bool:
    """Whether it says where its issuer's certificate is, as those of public authorities do."""
    try:
        certificate.extensions.get_extension_for_class(AuthorityInformationAccess)
    except (ExtensionNotFound, ValueError):
        return False
    return True


def isName(host: str) -> bool:
    """Whether it is a name, and not an address."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


_KEY: Final = b"PRIVATE KEY-----"


_MAX_PEM: Final = 1024 * 1024


@lru_cache(maxsize=1)
def _roots() -> frozenset[Name]:
    file = Path(ssl.get_default_verify_paths().cafile or "")
    try:
        with warnings.catch_warnings():
            # Some roots are older than rules that cryptography checks now.
            warnings.simplefilter("ignore")
            return frozenset(each.subject for each in load_pem_x509_certificates(file.read_bytes()))
    except (OSError, ValueError):
        return frozenset()


def isRoot(name: Name) -> bool:
    """Whether a name is that of an authority that this machine trusts."""
    return name in _roots()


def hasKey(path: Path) -> bool:
    """Whether a file has a private key."""
    return _KEY in readFile(path, _MAX_PEM)


_TIMEOUT: Final = 3.0

_MAX_ANSWER: Final = 1024 * 1024
"""The most bytes of an answer that is read: who answers may be anybody."""


@frozen(kw_only=True)
class ServerAnswer:
    """
    An answer of a server.

    @ivar value: its JSON; C{None} where it is none.
    """

    value: Any


Ask = Callable[..., ServerAnswer | None]
"""C{ask(url, headers, isVerified, call)}: L{askServer}, or what a test has in its place."""


def askServer(
    url: str,
    headers: Mapping[str, str] | None = None,
    isVerified: bool = True,
    call: Mapping[str, Any] | None = None,
) -> ServerAnswer | None:
    """
    GET a URL, or make an operator call there.

    @param call: the parameters of the call; C{None} for none.
    @param isVerified: whether the server's certificate must be trusted. On this machine it is one
        for names by which others reach it.
    @return: C{None} where there is no answer in time, or one that is too long.
    """
    began, body = time.time(), bytearray()
    try:
        with httpx.stream(
            "GET" if call is None else "POST",
            url,
            headers=headers,
            json=call,
            timeout=_TIMEOUT,
            verify=isVerified,
            trust_env=False,
        ) as response:
            for piece in response.iter_bytes():
                body += piece
                if len(body) > _MAX_ANSWER or time.time() > began + _TIMEOUT:
                    return None
    except (httpx.HTTPError, httpx.InvalidURL, OSError):
        return None
    try:
        return ServerAnswer(value=json.loads(body))
    except ValueError:
        return ServerAnswer(value=None)


def isAlive(answer: ServerAnswer | None) -> bool:
    """Whether a svcbroker has answered C{/healthz}."""
    return answer is not None and answer.value == {"status": "alive"}


def alarmFindings(answer: ServerAnswer | None) -> Iterator[Finding]:
    """The alarms of a running daemon, as it answers C{listAlarms}."""
    try:
        for each in answer.value["data"] if answer is not None else ():
            make = problem if each["level"] == Level.PROBLEM.value else warning
            place = f"group {each['groupId']}: " if each["groupId"] else ""
            text = f"{place}{each['text']}, since {date(each['since'] / 1000)}"
            yield make(f"alarm {each['name']}", text, each["meaning"], each["remedy"])
    except (TypeError, KeyError, AttributeError):
        return
