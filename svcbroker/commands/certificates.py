"""
C{svcbroker admin certificates}: an authority, and certificates of it for a server and its clients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from typing import Final

import click
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import (
    AuthorityKeyIdentifier,
    BasicConstraints,
    Certificate,
    CertificateBuilder,
    DNSName,
    ExtendedKeyUsage,
    GeneralName,
    IPAddress,
    KeyUsage,
    Name,
    NameAttribute,
    NameOID,
    ObjectIdentifier,
    SubjectAlternativeName,
    SubjectKeyIdentifier,
    random_serial_number,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from ..files import writeNew
from .arguments import PATH, ParsedType, jsonOption, makeCommand, options, wholeNumber
from .terminal import CommandError, Console, showRecord

DAYS: Final = 365
"""Days that certificates are good by default. Browsers refuse more than 398."""

LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""The server's name and addresses where none is given."""

_BACKDATED: Final = timedelta(hours=1)
"""Clients whose clocks are behind take a new certificate, too."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*")
_CLIENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


class Authority:
    """
    A certificate authority with a key of its own: ECDSA on P-256, which every client takes.

    @ivar certificate: its certificate, signed by itself.
    @ivar key: its private key.
    """

    def __init__(self, now: datetime, days: int = DAYS) -> None:
        """
        @param now: the time.
        @param days: how long its certificates, and its own, are good.
        """
        self._dates = now - _BACKDATED, now + timedelta(days=days)
        self.key = generate_private_key(SECP256R1())
        self._name = _named("svcbroker admin certificates")
        self.certificate = self._sign(self._name, self.key, None, ())

    def server(self, hosts: Sequence[str]) -> tuple[Certificate, EllipticCurvePrivateKey]:
        """A certificate for host names and IP addresses, and its private key."""
        key = generate_private_key(SECP256R1())
        # A common name has at most 64 characters; clients read the alternative names.
        certificate = self._sign(
            _named(hosts[0][:64]), key, ExtendedKeyUsageOID.SERVER_AUTH, [*map(_alternative, hosts)]
        )
        return certificate, key

    def client(self, name: str) -> tuple[Certificate, EllipticCurvePrivateKey]:
        """A certificate for a client, and its private key."""
        key = generate_private_key(SECP256R1())
        return self._sign(_named(name), key, ExtendedKeyUsageOID.CLIENT_AUTH, ()), key

    def _sign(
        self,
        subject: Name,
        key: EllipticCurvePrivateKey,
        purpose: ObjectIdentifier | None,
        names: Sequence[GeneralName],
    ) -> Certificate:
        """
        @param purpose: what the certificate is for; C{None} for the authority's own.
        """
        public, own = key.public_key(), self.key.public_key()
        isAuthority = purpose is None
        usages = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        builder = (
            CertificateBuilder(self._name, subject, public, random_serial_number(), *self._dates)
            .add_extension(BasicConstraints(isAuthority, 0 if isAuthority else None), critical=True)
            .add_extension(
                KeyUsage(
                    digital_signature=not isAuthority,
                    key_cert_sign=isAuthority,
                    crl_sign=isAuthority,
                    encipher_only=False,
                    decipher_only=False,
                    **usages,
                ),
                critical=True,
            )
            .add_extension(SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(AuthorityKeyIdentifier.from_issuer_public_key(own), critical=False)
        )
        if purpose is not None:
            builder = builder.add_extension(ExtendedKeyUsage([purpose]), critical=False)
        if names:
            builder = builder.add_extension(SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, SHA256())


def certificatePem(certificate: Certificate) -> bytes:
    """A certificate as a PEM file has it."""
    return certificate.public_bytes(Encoding.PEM)


def keyPem(key: EllipticCurvePrivateKey) -> bytes:
    """A private key as a PEM file has it."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _named(name: str) -> Name:
    return Name([NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> GeneralName:
    try:
        return IPAddress(ip_address(host))
    except ValueError:
        return DNSName(host)


def _host(text: str) -> str:
    if len(text) > 253 or not (_HOST.fullmatch(text) or _isAddress(text)):
        raise ValueError(f"{text!r} is not a host name or an IP address")
    return text


def _client(text: str) -> str:
    if _CLIENT.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a name of at most 64 letters, digits and . _ @ -")
    return text


def _isAddress(host: str) -> bool:
    return isinstance(_alternative(host), IPAddress)


@makeCommand(
    """\
    Make certificates for trying TLS, of an authority of its own.

    For trying only: the authority's private key lies in the directory, too. Files that exist are
    never changed.
    """
)
@options(
    click.argument("directory", metavar="DIR", type=PATH),
    click.option(
        "--host",
        "hosts",
        type=ParsedType("host", _host),
        metavar="NAME",
        multiple=True,
        help="A name or an address of the server. May come again. [default: localhost]",
    ),
    click.option(
        "--client",
        "clients",
        type=ParsedType("name", _client),
        metavar="NAME",
        multiple=True,
        help="The name of a client. May come again. [default: client]",
    ),
    click.option(
        "--days",
        type=wholeNumber(1, 36500, "is not a number from 1 to 36500"),
        default=DAYS,
        show_default=True,
        metavar="NUMBER",
        help="For how many days the certificates are good.",
    ),
    jsonOption(),
)
def command(
    console: Console,
    directory: Path,
    hosts: Sequence[str],
    clients: Sequence[str],
    days: int,
    asJson: bool,
) -> None:
    """Make the certificates, and print the lines to use them."""
    hosts = list(dict.fromkeys(hosts)) or list(LOCAL)
    clients = list(dict.fromkeys(clients)) or ["client"]
    authority = Authority(datetime.now(UTC), days)
    files = {
        directory / "ca.pem": certificatePem(authority.certificate),
        directory / "ca-key.pem": keyPem(authority.key),
        **_files(directory / "server", authority.server(hosts)),
    }
    for client in clients:
        files |= _files(directory / "clients" / client, authority.client(client))
    for path in files:
        if path.is_symlink() or path.exists():
            raise CommandError(f"{path} exists already; nothing was made")
    for path, data in files.items():
        _write(path, data)
    root = directory.absolute()
    record = {
        "ca": str(root / "ca.pem"),
        "caKey": str(root / "ca-key.pem"),
        "server": str(root / "server"),
        "clients": {client: str(root / "clients" / client) for client in clients},
        "hosts": hosts,
    }
    showRecord(console, record, _usage(directory, hosts, clients[0]), asJson)


def _files(directory: Path, made: tuple[Certificate, EllipticCurvePrivateKey]) -> dict[Path, bytes]:
    certificate, key = made
    return {directory / "cert.pem": certificatePem(certificate), directory / "key.pem": keyPem(key)}


def _write(path: Path, data: bytes) -> None:
    for directory in [*reversed(path.parents)]:
        directory.mkdir(mode=0o700, exist_ok=True)
    writeNew(path, data)


def _usage(directory: Path, hosts: Sequence[str], client: str) -> Sequence[str]:
    """The lines with which a daemon and its clients use the files."""
    from twisted.internet.endpoints import quoteStringArgument

    root = directory.absolute()
    server, authority = (quoteStringArgument(str(root / name)) for name in ("server", "ca.pem"))
    where = ":interface=127.0.0.1" if set(hosts) <= set(LOCAL) else ""
    own = root / "clients" / client
    ca, certificate, key = (
        quote(str(path)) for path in (root / "ca.pem", own / "cert.pem", own / "key.pem")
    )
    # A wildcard is no address, and URLs have IPv6 addresses in brackets.
    host = hosts[0].replace("*.", "www.")
    url = f"https://[{host}]:8443" if ":" in host else f"https://{host}:8443"

    def endpoint(port: int) -> str:
        return quote(f"mtls:{port}:certs={server}:clients={authority}{where}")

    return [
        "The daemon, which verifies the certificates that clients show:",
        "  svcbroker run \\",
        f"    --http {endpoint(8443)} \\",
        f"    --mqtt {endpoint(8883)} \\",
        f"    --stomp {endpoint(61614)}",
        "Add :require=yes to an endpoint to refuse clients that show none. Clients:",
        f"  curl --cacert {ca} --cert {certificate} --key {key} {quote(url + '/healthz')}",
        f"  mosquitto_sub -h {quote(host)} -p 8883 --cafile {ca} --cert {certificate} --key {key} "
        "-t '#'",
        f"{root / 'ca-key.pem'} is the private key of the authority. Servers do not need it.",
    ]
