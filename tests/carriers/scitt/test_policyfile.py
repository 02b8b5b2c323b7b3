"""
Tests for L{svcbroker.carriers.scitt.policyfile}.
"""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.scitt.policyfile import readPolicy
from svcbroker.net.settings import ConfigError
from tests.carriers.scitt.support import CLAIMS, ISSUER


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
