"""
Tests for L{svcbroker.carriers.scitt.policyfile}.
"""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.scitt.policyfile import readPolicy
from svcbroker.net.settings import ConfigError
from tests.carriers.scitt.support import CLAIMS, ISSUER
from tests.proofs.scitt.test_chains import ROOT


class PolicyFileTests(SynchronousTestCase):
    """
    A file with one issuer, whose keys are beside it.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.path.parent.mkdir(exist_ok=True)
        keys = self.path.with_name("issuer-keys")
        keys.write_bytes(ISSUER.public.encode())
        self.issuers = f'[[issuers]]\nissuer = "{CLAIMS.issuer}"\nkeys = "{keys.name}"\n'

    def test_leafAndReceiptsHaveDefaults(self) -> None:
        for text, expected in (
            ("", (False, "ES256")),
            ('leaf = "entry"\nreceipts = "ES256"\n', (False, "ES256")),
            ('leaf = "sha256"\nreceipts = "EdDSA"\n', (True, "EdDSA")),
        ):
            self.path.write_text(text + self.issuers)
            policy = readPolicy("scitt-policy", str(self.path))
            self.assertEqual((policy.isHashed, policy.receipts), expected)
            self.assertEqual([*policy.issuers], [(CLAIMS.issuer, ISSUER.public.kid)])

    def test_otherValuesAreNamed(self) -> None:
        for text, words in (
            ('receipts = "ES384"\n', "receipts is not one of ES256, EdDSA"),
            ("receipts = 1\n", "receipts is not one of ES256, EdDSA"),
            ('leaf = "x"\n', "leaf is not one of entry, sha256"),
            ("leafs = 1\n", "the file has 'leafs', but may have issuers, leaf, receipts"),
        ):
            self.path.write_text(text + self.issuers)
            with self.assertRaises(ConfigError) as raised:
                readPolicy("scitt-policy", str(self.path))
            self.assertIn(words, str(raised.exception))

    def test_rootsTakeThePlaceOfKeys(self) -> None:
        """From then on, and until then; each of the file."""
        pem = self.path.with_name("roots.pem")
        pem.write_bytes(ROOT.certificate.public_bytes(Encoding.PEM))
        issuer = f'[[issuers]]\nissuer = "{CLAIMS.issuer}"\n'
        roots = f'roots = "{pem.name}"\n'
        self.path.write_text(f"{self.issuers}{issuer}{roots}since = 1970-01-01T00:00:01Z\n")
        policy = readPolicy("scitt-policy", str(self.path))
        self.assertEqual([*policy.issuers], [(CLAIMS.issuer, ISSUER.public.kid)])
        [root] = policy.roots
        found = (root.name, root.root.data, root.since, root.until)
        self.assertEqual(found, (CLAIMS.issuer, ROOT.data, 1000, None))
        for text, words in (
            ("", "needs either keys or roots"),
            ('roots = "x"\nkeys = "x"\n', "needs either keys or roots"),
            ("roots = 1\n", "is not the path of a file"),
            (f'{roots}kid = "1"\n', "is for keys"),
            ('roots = "issuer-keys"\n', "the roots are not certificates in PEM"),
            ('roots = "absent"\n', "cannot read"),
        ):
            self.path.write_text(issuer + text)
            error = self.assertRaises(ConfigError, readPolicy, "scitt-policy", str(self.path))
            self.assertIn(words, str(error))
