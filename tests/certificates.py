"""
Certificates for tests of TLS.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import (
    CertificateBuilder,
    DNSName,
    Name,
    NameAttribute,
    NameOID,
    SubjectAlternativeName,
    random_serial_number,
)

NAME = "broker.example"


def makeCertificate(root: Path) -> tuple[Path, Path]:
    """PEM files of a new key and of its own certificate, for L{NAME}."""
    key = generate_private_key(SECP256R1())
    name = Name([NameAttribute(NameOID.COMMON_NAME, NAME)])
    builder = CertificateBuilder(name, name, key.public_key(), random_serial_number())
    builder = builder.add_extension(SubjectAlternativeName([DNSName(NAME)]), critical=False)
    dates = datetime(2020, 1, 1), datetime(2099, 1, 1)
    signed = builder.not_valid_before(dates[0]).not_valid_after(dates[1]).sign(key, SHA256())
    paths = root / "key.pem", root / "certificate.pem"
    paths[0].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    paths[1].write_bytes(signed.public_bytes(Encoding.PEM))
    return paths
