"""
Chains of X.509 certificates in the header of a statement (C{x5chain}, RFC 9360), up to a root that
is trusted for its issuer.

Nothing but the chain, the roots and a time decide, so that a statement that is checked again has
the same result: no store of the machine, and no list of what was revoked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final

from attrs import frozen
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID, SignatureAlgorithmOID

from .._documents import ProofInvalid
from ._cose import CoseKey, fieldsOf

X5CHAIN: Final = 33
_X5T: Final = 34
_SHA256: Final = -16

MAX_CHAIN: Final = 8
"""The most certificates of a chain."""

MAX_CERTIFICATE: Final = 16 * 1024
"""The most bytes of a certificate."""

_MIN_RSA: Final = 2048
_UNDERSTOOD: Final = (
    ExtensionOID.BASIC_CONSTRAINTS,
    ExtensionOID.KEY_USAGE,
    ExtensionOID.EXTENDED_KEY_USAGE,
)
_HASHES: Final = (hashes.SHA256, hashes.SHA384, hashes.SHA512)


@frozen
class Root:
    """
    A certificate that statements of an issuer may lead to.

    @ivar data: the certificate, in DER.
    """

    data: bytes
    certificate: x509.Certificate

    @classmethod
    def decode(cls, data: bytes) -> Root:
        """
        Read one in DER.

        @raise ProofInvalid: it is no certificate of an authority.
        """
        certificate = _decode(data, "the root")
        _checkAuthority(certificate, 0, "the root")
        return cls(data, certificate)


def readRoots(data: bytes) -> Sequence[Root]:
    """
    Read certificates in PEM.

    @raise ProofInvalid: it is something else, or one is none of an authority.
    """
    try:
        found = x509.load_pem_x509_certificates(data)
    except ValueError:
        raise ProofInvalid("the roots are not certificates in PEM") from None
    return [Root.decode(each.public_bytes(Encoding.DER)) for each in found]


def keyOfChain(header: Mapping[Any, Any], roots: Sequence[Root], time: int) -> CoseKey:
    """
    The key of the first certificate in a protected header.

    @param roots: those that are trusted for the issuer.
    @param time: when the chain has to be valid, in milliseconds since the epoch.
    @raise ProofInvalid: there is no chain to one of them, or it is not valid then.
    """
    chain = _chainOf(header)
    path = [*chain]
    if path[-1] not in [each.certificate for each in roots]:
        path.append(_rootOf(path[-1], roots))
    for place, each in enumerate(path):
        what = "the certificate of the issuer" if place == 0 else f"certificate {place + 1}"
        _checkTime(each, time, what)
        if place:
            _checkAuthority(each, place - 1, what)
        else:
            _checkSigner(each, what)
    for place, (issued, issuer) in enumerate(pairwise(path), 1):
        if not _hasIssued(issuer, issued):
            raise ProofInvalid(f"certificate {place} of the chain is not issued by the next one")
    try:
        return CoseKey.make(fieldsOf(path[0].public_key()))
    except (ValueError, UnsupportedAlgorithm):
        raise ProofInvalid("the certificate of the issuer has no key that is known here") from None


def _chainOf(header: Mapping[Any, Any]) -> Sequence[x509.Certificate]:
    """The certificates of a header, that of the issuer first."""
    given = header[X5CHAIN]
    # One alone stands without an array (RFC 9360).
    parts = [given] if isinstance(given, bytes) else given
    if not isinstance(parts, list) or not all(isinstance(each, bytes) for each in parts):
        raise ProofInvalid("the chain of the statement is malformed")
    if (len(parts) < 2 and parts is given) or len(parts) > MAX_CHAIN:
        raise ProofInvalid(f"the chain of the statement has not 1 to {MAX_CHAIN} certificates")
    if _X5T in header and header[_X5T] != [_SHA256, sha256(parts[0]).digest()]:
        raise ProofInvalid("x5t of the statement is not the SHA-256 of its certificate")
    return [_decode(each, f"certificate {place}") for place, each in enumerate(parts, 1)]


def _decode(data: bytes, what: str) -> x509.Certificate:
    if len(data) > MAX_CERTIFICATE:
        raise ProofInvalid(f"{what} has more than {MAX_CERTIFICATE} bytes")
    try:
        found = x509.load_der_x509_certificate(data)
        critical = [each.oid for each in found.extensions if each.critical]
        isWhole = found.public_bytes(Encoding.DER) == data
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise ProofInvalid(f"{what} is no X.509 certificate") from None
    if not isWhole:
        raise ProofInvalid(f"{what} is no X.509 certificate")
    if any(each not in _UNDERSTOOD for each in critical):
        raise ProofInvalid(f"{what} has a critical extension that is not understood here")
    return found


def _rootOf(last: x509.Certificate, roots: Sequence[Root]) -> x509.Certificate:
    """The root that has issued the last certificate of a chain."""
    for each in roots:
        if _hasIssued(each.certificate, last):
            return each.certificate
    raise ProofInvalid("the chain does not end at a root that is trusted for the issuer")


def _hasIssued(issuer: x509.Certificate, issued: x509.Certificate) -> bool:
    """Whether a certificate has the name and the signature of another one, of a strong kind."""
    isEdDsa = issued.signature_algorithm_oid == SignatureAlgorithmOID.ED25519
    try:
        isStrong = isEdDsa or isinstance(issued.signature_hash_algorithm, _HASHES)
        key = issuer.public_key()
        if not isStrong or (isinstance(key, rsa.RSAPublicKey) and key.key_size < _MIN_RSA):
            return False
        issued.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _checkTime(certificate: x509.Certificate, time: int, what: str) -> None:
    start = certificate.not_valid_before_utc.timestamp()
    # The last second is a part of it.
    end = certificate.not_valid_after_utc.timestamp() + 1
    if not start * 1000 <= time < end * 1000:
        raise ProofInvalid(f"{what} is not valid at this time")


def _checkAuthority(certificate: x509.Certificate, below: int, what: str) -> None:
    """
    Check that a certificate may issue others.

    @param below: the number of authorities between it and the issuer of the statement.
    """
    constraints = _extension(certificate, x509.BasicConstraints)
    usage = _extension(certificate, x509.KeyUsage)
    if constraints is None or not constraints.ca or not (usage is None or usage.key_cert_sign):
        raise ProofInvalid(f"{what} is not that of an authority")
    if constraints.path_length is not None and constraints.path_length < below:
        raise ProofInvalid(f"{what} does not allow as many authorities below it")


def _checkSigner(certificate: x509.Certificate, what: str) -> None:
    constraints = _extension(certificate, x509.BasicConstraints)
    usage = _extension(certificate, x509.KeyUsage)
    if constraints is not None and constraints.ca:
        raise ProofInvalid(f"{what} is that of an authority, which signs certificates alone")
    if usage is not None and not usage.digital_signature:
        raise ProofInvalid(f"{what} is not for signatures")


def _extension(certificate: x509.Certificate, kind: type[Any]) -> Any:
    """An extension of a certificate; C{None} where it has none of this kind."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
