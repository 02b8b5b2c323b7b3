"""
PEM files: certificates and private keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509 import (
    Certificate,
    DuplicateExtension,
    InvalidVersion,
    UnsupportedGeneralNameType,
    load_pem_x509_certificate,
)
from OpenSSL.crypto import X509
from OpenSSL.crypto import Error as CryptoError
from OpenSSL.SSL import Error as SSLError

from ..files import openFile

MAX_PEM: Final = 4 * 1024 * 1024
"""The largest PEM file, in bytes. Bundles of all public authorities have some 250 KiB."""

UNREADABLE: Final = (
    *(ValueError, TypeError, UnsupportedAlgorithm, CryptoError, SSLError),
    *(InvalidVersion, DuplicateExtension, UnsupportedGeneralNameType),
)
"""What parsers of certificates and keys raise."""

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
    with openFile(path) as file:
        data = file.read(MAX_PEM + 1)
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
