"""
PEM files: certificates and private keys, those of TLS servers, chosen by the name that a client
asks for (SNI), and those that this broker shows to servers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from attrs import field, frozen
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509 import (
    BasicConstraints,
    Certificate,
    DNSName,
    DuplicateExtension,
    InvalidVersion,
    NameOID,
    SubjectAlternativeName,
    UnsupportedGeneralNameType,
    load_pem_x509_certificate,
)
from OpenSSL.crypto import X509, X509StoreFlags
from OpenSSL.crypto import Error as CryptoError
from OpenSSL.SSL import Context
from OpenSSL.SSL import Error as SSLError
from twisted.internet.ssl import CertificateOptions, DiffieHellmanParameters
from twisted.python.filepath import FilePath

from ..files import readFile

MAX_PEM: Final = 4 * 1024 * 1024
"""The largest PEM file, in bytes. Bundles of all public authorities have some 250 KiB."""

UNREADABLE: Final = (
    *(ValueError, TypeError, UnsupportedAlgorithm, CryptoError, SSLError),
    *(InvalidVersion, DuplicateExtension, UnsupportedGeneralNameType),
)
"""The errors that parsers of certificates and keys raise."""

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)
_BEGIN: Final = b"-----BEGIN "


class CertificateError(Exception):
    """
    Files of certificates cannot be used. The text is one line that names the file.
    """


@frozen
class Pem:
    """
    A PEM file.

    @ivar certificates: its certificates, in their order.
    @ivar keys: its private keys.
    """

    path: Path
    certificates: Sequence[Certificate]
    keys: Sequence[PrivateKeyTypes]


def readPem(path: Path) -> Pem:
    """
    Read the certificates and private keys of a file; other blocks are ignored.

    @raise CertificateError: it cannot be read to its end.
    @raise OSError: it cannot be opened.
    """
    data = readFile(path, MAX_PEM)
    if len(data) > MAX_PEM:
        raise CertificateError(f"{path} has more than {MAX_PEM} bytes")
    blocks = list(_BLOCK.finditer(data))
    if len(blocks) != data.count(_BEGIN):
        raise CertificateError(f"{path} is cut off: a block of it has no end")
    certificates: list[Certificate] = []
    keys: list[PrivateKeyTypes] = []
    for block in blocks:
        with explaining(f"{path} has a {block[1].decode('ascii').lower()} that cannot be read"):
            if block[1] == b"CERTIFICATE":
                certificate = load_pem_x509_certificate(block[0])
                # OpenSSL's parser is another one.
                X509.from_cryptography(certificate)
                certificates.append(certificate)
            elif block[1] == b"ENCRYPTED PRIVATE KEY" or b"Proc-Type: 4,ENCRYPTED" in block[0]:
                raise CertificateError(f"{path} has a private key that needs a passphrase")
            elif block[1].endswith(b"PRIVATE KEY"):
                keys.append(load_pem_private_key(block[0], None))
    return Pem(path, certificates, keys)


@contextmanager
def explaining(what: str) -> Iterator[None]:
    """Turn the errors of parsers into L{CertificateError}."""
    try:
        yield
    except UNREADABLE as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, list):
            # OpenSSL's errors, the innermost first: library, function, reason.
            reason = reason[0][-1] if reason else "for no reason that OpenSSL tells"
        raise CertificateError(" ".join(f"{what}: {reason}".split())) from error


def readCertificates(path: Path) -> Sequence[Certificate]:
    """The certificates of a file that has some. The errors are those of L{readPem}."""
    certificates = readPem(path).certificates
    if not certificates:
        raise CertificateError(f"{path} has no certificate")
    return certificates


def publicBytes(key: Any) -> bytes:
    """A public key as bytes, the same for equal keys."""
    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return encoded


def publicOf(path: Path, certificate: Certificate) -> bytes:
    """
    The public key of a certificate, as L{publicBytes} gives it.

    @raise CertificateError: it is of an unknown kind.
    """
    with explaining(f"{path} has a certificate with an unknown key"):
        return publicBytes(certificate.public_key())


_NO_AUTO_CHAIN: Final = 0x8  # SSL_MODE_NO_AUTO_CHAIN, which pyOpenSSL does not name


@frozen
class _Identity:
    """
    A certificate, its private key, and the intermediate certificates to send with it.

    @ivar path: the file of the certificate.
    @ivar names: the names that the certificate is for.
    @ivar isAuthority: whether it may sign other certificates.
    """

    path: Path
    certificate: Certificate
    key: PrivateKeyTypes
    chain: Sequence[Certificate]
    names: Sequence[str]
    isAuthority: bool


def _identify(
    path: Path, certificate: Certificate, key: PrivateKeyTypes, chain: Sequence[Certificate]
) -> _Identity:
    with explaining(f"{path} has a certificate that cannot be read"):
        found = {type(each.value): each.value for each in certificate.extensions}
        alternatives = found.get(SubjectAlternativeName)
        constraints = found.get(BasicConstraints)
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    names = [str(each.value) for each in common]
    if isinstance(alternatives, SubjectAlternativeName):
        names = alternatives.get_values_for_type(DNSName)
    isAuthority = isinstance(constraints, BasicConstraints) and constraints.ca
    return _Identity(path, certificate, key, chain, [name.lower() for name in names], isAuthority)


# Sources


class CertificateSource(Protocol):
    """
    The files of one endpoint's certificates. All methods block; they are called in a thread.
    """

    def files(self) -> Sequence[Path]:
        """The files that are read, as they are now."""

    def load(self) -> CertificateOptions:
        """
        Read the files.

        @raise CertificateError: they cannot be used.
        @raise OSError: one of them cannot be opened.
        """

    def chains(self) -> Sequence[Sequence[Certificate]]:
        """
        Read the certificates of servers, each with the intermediate certificates that are sent
        with it. The errors are those of L{load}.
        """


@frozen
class ClientAuthorities:
    """
    The authorities of clients' certificates.

    @ivar path: a PEM file with their certificates. Each is trusted as it stands, also one that
        another authority has signed.
    @ivar isRequired: whether clients without a certificate are refused.
    """

    path: Path
    isRequired: bool

    def load(self) -> dict[str, Any]:
        """
        Read the file. The errors are those of L{CertificateSource.load}.

        @return: arguments of C{CertificateOptions}.
        """
        authorities = readCertificates(self.path)
        return {"caCerts": authorities, "verify": True, "requireCertificate": self.isRequired}


class _TrustRoot:
    """
    The trust root of C{CertificateOptions}, which also tells clients the names of the authorities,
    so that they can choose a certificate.
    """

    def __init__(self, authorities: Sequence[Certificate]) -> None:
        self._authorities = authorities

    def _addCACertsToContext(self, context: Context) -> None:
        store = context.get_cert_store()
        assert store is not None
        store.set_flags(X509StoreFlags.PARTIAL_CHAIN)
        # Or OpenSSL would look for intermediate certificates of the server among these, and send
        # them.
        context.set_mode(_NO_AUTO_CHAIN)
        for each in self._authorities:
            store.add_cert(X509.from_cryptography(each))
            context.add_client_ca(each)


@frozen(kw_only=True)
class CertificateDirectory:
    """
    A directory with PEM files, at any depth: certificates, their private keys and intermediate
    certificates, in any arrangement.

    Clients get the certificate of the name that they ask for; the one issued last, where several
    have it. Clients that ask for another name, or for none, get that of the first file.

    @ivar clients: verifies clients' certificates; C{None} where clients are not asked for any.
    """

    path: Path
    clients: ClientAuthorities | None = None

    def files(self) -> Sequence[Path]:
        """See L{CertificateSource.files}."""
        found = sorted(_pemFiles(self.path, set()))
        return found if self.clients is None else [*found, self.clients.path]

    def load(self) -> CertificateOptions:
        """See L{CertificateSource.load}."""
        clients: dict[str, Any] = {} if self.clients is None else self.clients.load()
        contexts: dict[str, Context] = {}

        def find(name: bytes | None) -> Context | None:
            text = (name or b"").decode("ascii", "replace").lower()
            return contexts.get(text) or contexts.get("*." + text.partition(".")[2])

        identities = _identitiesOf(sorted(_pemFiles(self.path, set())), self.path)
        # An authority that lies beside its certificates is the default only where it is alone.
        first = default = min(identities, key=lambda each: each.isAuthority)
        made: dict[Certificate, CertificateOptions] = {}
        for each in sorted(identities, key=lambda each: each.certificate.not_valid_before_utc):
            options = _makeOptions(each, contextForServerName=find, **clients)
            contexts.update(dict.fromkeys(each.names, _makeContext(each.path, options)))
            made[each.certificate] = options
            if set(each.names) & set(first.names):
                default = each
        return made[default.certificate]

    def chains(self) -> Sequence[Sequence[Certificate]]:
        """See L{CertificateSource.chains}."""
        identities = _identitiesOf(sorted(_pemFiles(self.path, set())), self.path)
        return [[each.certificate, *each.chain] for each in identities]


def _pemFiles(directory: Path, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """
    The PEM files below a directory. Symbolic links are followed, each directory once.

    @raise OSError: a directory cannot be read.
    """
    status = directory.stat()
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _pemFiles(Path(entry.path), seen)
            elif entry.name.endswith(".pem") and entry.is_file():
                yield Path(entry.path)


def _chainOf(leaf: Certificate, candidates: Sequence[Certificate]) -> Sequence[Certificate]:
    """
    The intermediate certificates above a certificate, without the root, which clients have.
    """
    chain = [leaf]
    while True:
        issuer = next((each for each in candidates if _hasIssued(each, chain[-1])), None)
        if issuer is None or issuer in chain or issuer.issuer == issuer.subject:
            return chain[1:]
        chain.append(issuer)


def _hasIssued(issuer: Certificate, certificate: Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, *UNREADABLE):
        return False
    return True


def _identitiesOf(paths: Sequence[Path], place: Path) -> Sequence[_Identity]:
    """
    Each certificate in PEM files of which there is the private key, in the order of the files. The
    errors are those of L{CertificateSource.load}.

    @param place: the directory of the files, or the only one.
    """
    pems = [readPem(each) for each in paths]
    keys = {publicBytes(key.public_key()): key for pem in pems for key in pem.keys}
    owned: dict[Certificate, tuple[PrivateKeyTypes, Pem]] = {}
    others: list[Certificate] = []
    matched: set[bytes] = set()
    for pem in pems:
        for certificate in pem.certificates:
            public = publicOf(pem.path, certificate)
            if public in keys:
                matched.add(public)
                owned.setdefault(certificate, (keys[public], pem))
            else:
                others.append(certificate)
    for pem in pems:
        if not matched.issuperset(publicBytes(key.public_key()) for key in pem.keys):
            raise CertificateError(
                f"{pem.path} has a private key that matches no certificate in {place}"
            )
    if not owned:
        where = "" if place in paths else " in files named *.pem"
        raise CertificateError(f"{place} has no certificate with its private key{where}")
    return [
        _identify(pem.path, certificate, key, _chainOf(certificate, [*pem.certificates, *others]))
        for certificate, (key, pem) in owned.items()
    ]


@frozen(kw_only=True)
class CertificateFiles:
    """
    One certificate, its private key and its chain, as C{ssl:} endpoints name their files.

    @ivar privateKey: the file of the private key.
    @ivar certKey: the file of the certificate, which its intermediate certificates may follow.
    @ivar extraCertChain: a file with further intermediate certificates.
    @ivar dhParameters: a file with parameters of a Diffie-Hellman key exchange.
    @ivar method: the TLS method as C{OpenSSL.SSL} numbers it; C{None} for TLS 1.2 or later.
    """

    privateKey: Path
    certKey: Path
    extraCertChain: Path | None = None
    dhParameters: Path | None = None
    method: int | None = None

    def files(self) -> Sequence[Path]:
        """See L{CertificateSource.files}."""
        every = (self.privateKey, self.certKey, self.extraCertChain, self.dhParameters)
        return [path for path in every if path is not None]

    def chains(self) -> Sequence[Sequence[Certificate]]:
        """See L{CertificateSource.chains}."""
        identity = self._identify()
        return [[identity.certificate, *identity.chain]]

    def load(self) -> CertificateOptions:
        """See L{CertificateSource.load}."""
        given: dict[str, Any] = {}
        if self.method is not None:
            given["method"] = self.method
        if self.dhParameters is not None:
            path = FilePath(str(self.dhParameters))
            given["dhParameters"] = DiffieHellmanParameters.fromFile(path)
        options = _makeOptions(self._identify(), **given)
        _makeContext(self.certKey, options)
        return options

    def _identify(self) -> _Identity:
        certificate, *chain = readCertificates(self.certKey)
        keys = readPem(self.privateKey).keys
        if len(keys) != 1:
            raise CertificateError(f"{self.privateKey} has {len(keys)} private keys instead of one")
        if publicBytes(keys[0].public_key()) != publicOf(self.certKey, certificate):
            raise CertificateError(
                f"the private key in {self.privateKey} does not match the certificate in "
                f"{self.certKey}"
            )
        if self.extraCertChain is not None:
            chain += readCertificates(self.extraCertChain)
        return _identify(self.certKey, certificate, keys[0], chain)


@frozen(eq=False)
class ClientIdentity:
    """
    A certificate that this broker shows to servers which ask for one.

    @ivar options: arguments of C{CertificateOptions}: the certificate, its private key, and the
        intermediate certificates to send with it.
    """

    options: Mapping[str, Any] = field(repr=False)

    @classmethod
    def load(cls, path: Path) -> ClientIdentity:
        """
        Read a certificate and its private key. Blocks. The errors are those of
        L{CertificateSource.load}.

        @param path: a PEM file with both, or a directory whose PEM files have them. Intermediate
            certificates may be there too.
        """
        paths = sorted(_pemFiles(path, set())) if path.is_dir() else [path]
        identity, *others = _identitiesOf(paths, path)
        if others:
            raise CertificateError(f"{path} has several certificates with their private keys")
        _makeContext(identity.path, _makeOptions(identity))
        return cls(_argumentsOf(identity))


def _argumentsOf(identity: _Identity) -> dict[str, Any]:
    # Twisted's annotations name the older classes of pyOpenSSL, which pyOpenSSL deprecates.
    return {
        "certificate": identity.certificate,
        "privateKey": identity.key,
        "extraCertChain": identity.chain,
    }


def _makeOptions(identity: _Identity, **given: Any) -> CertificateOptions:
    options: Any = CertificateOptions(**_argumentsOf(identity), **given)
    if options.caCerts is not None:
        options.trustRoot = _TrustRoot(options.caCerts)
    made: CertificateOptions = options
    return made


def _makeContext(path: Path, options: CertificateOptions) -> Context:
    """
    Have OpenSSL look at the certificate now, instead of at the first connection.
    """
    with explaining(f"{path} has a certificate that OpenSSL refuses"):
        return options.getContext()
