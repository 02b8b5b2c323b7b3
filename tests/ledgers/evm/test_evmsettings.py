"""
The settings of the ledger on a chain.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.interfaces import InvalidDescription
from svcbroker.ledgers import readDescription
from svcbroker.ledgers.evm import checkInstalled, readSettings

skip = checkInstalled() or None

GOOD = {
    "endpoint": "8545,http://10.0.0.1:8545",
    "contract": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "key": "/etc/svcbroker/broker.key",
    "chain-id": "1337",
    "finality": "instant",
}


class SettingsTests(SynchronousTestCase):
    def test_goodSettingsAreRead(self) -> None:
        """Settings are read, also from a description."""
        made = readSettings(GOOD)
        self.assertEqual(made.endpoint, ("http://127.0.0.1:8545", "http://10.0.0.1:8545"))
        self.assertEqual((made.chainId, made.finality, made.gasPrice), (1337, 0, None))
        self.assertEqual(readSettings({**GOOD, "finality": "finalized"}).finality, "finalized")
        self.assertEqual(readSettings({**GOOD, "finality": "12"}).finality, 12)
        text = ":".join(f"{key}={value}" for key, value in GOOD.items())
        text = text.replace("http://10.0.0.1:8545", "http\\://10.0.0.1\\:8545")
        self.assertEqual(readSettings(readDescription(f"evm:{text}").settings), made)

    def test_badSettingsAreNamed(self) -> None:
        """A bad value, an unknown key and a missing setting are told by their names."""
        for key, value in (
            ("endpoint", "ftp://x"),
            ("endpoint", "0"),
            ("endpoint", ",".join(["1"] * 17)),
            ("contract", "0x12"),
            ("contract", "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"),
            ("key", ""),
            ("chain-id", "0"),
            ("finality", "soon"),
            ("finality", "0"),
            ("dialect", "klingon"),
            ("window", "0"),
            ("gas-price", "-1"),
            ("interval", "nan"),
            ("mempool", "1"),
            ("unknown", "1"),
        ):
            error = self.assertRaises(InvalidDescription, readSettings, {**GOOD, key: value})
            self.assertIn(key, str(error))
        for key in GOOD:
            left = {name: value for name, value in GOOD.items() if name != key}
            error = self.assertRaises(InvalidDescription, readSettings, left)
            self.assertIn(key, str(error))
