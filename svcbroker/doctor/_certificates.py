"""
The certificates of endpoints: their time, their names, their chains and their keys.
"""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path
from typing import Final

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

from ..files import openFile
from ._findings import DAY, Finding, date, good, listed, problem, span, warning

_CERTIFICATE_ENDS_SOON = 14 * DAY
"""Seconds before the end of a certificate at which it should have been renewed."""

_SMALL_KEY = 2048
_WEAK = ("md5", "sha1")


@frozen(kw_only=True)
class CertificateFacts:
    """
    What is known of an endpoint's certificates.

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
    """Whether clients accept the certificates of an endpoint, now and soon."""
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
            "have it signed: svcbroker certificates, for trying; an authority, for good",
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
    renew = "renew it; a running daemon reads the new files within 20 seconds (svcbroker reload)"
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
    with openFile(path) as file:
        return _KEY in file.read(_MAX_PEM)
