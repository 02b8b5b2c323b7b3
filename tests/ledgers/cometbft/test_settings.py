"""
The settings of a description.
"""

from __future__ import annotations

from pathlib import Path

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.interfaces import InvalidDescription
from svcbroker.ledgers import readDescription
from svcbroker.ledgers.cometbft._cometsettings import (
    OUTDATED,
    SETTINGS,
    CometSettings,
    readSettings,
)


class SettingsTests(SynchronousTestCase):
    """
    L{readSettings}.
    """

    def read(self, text: str) -> CometSettings:
        """The settings of a description."""
        return readSettings(readDescription(f"cometbft:{text}").settings)

    def test_onlyHomeIsRequired(self) -> None:
        """Only the home must be said; the rest is where the engine has it by itself."""
        made = self.read("home=/net/node0")
        self.assertEqual(made.home, Path("/net/node0"))
        self.assertEqual(made.socket, Path("/net/node0/abci.sock"))
        self.assertEqual(made.rpc, "http://127.0.0.1:26657")
        self.assertIsNone(made.engine)

    def test_allSettingsAreRead(self) -> None:
        """Every setting that is explained can be given."""
        texts = {
            "home": "/h",
            "rpc": "https://a.example:1/",
            "socket": "/run/s",
            "engine": "/bin/cometbft",
            "interval": "0.5",
            "mempool": "4096",
            "timeout": "3",
            "snapshots": "0",
            "keep": "500",
            "format3": "9000",
            "format4": "10000",
        }
        self.assertEqual(set(texts), set(SETTINGS))
        self.assertEqual(
            readSettings(texts),
            CometSettings(
                home=Path("/h"),
                rpc="https://a.example:1",
                socket=Path("/run/s"),
                engine=Path("/bin/cometbft"),
                interval=0.5,
                mempool=4096,
                timeout=3.0,
                snapshots=0,
                keep=500,
                format3=9000,
                format4=10000,
            ),
        )

    def test_outdatedSettingsAreTakenAndTold(self) -> None:
        """Descriptions of earlier releases can still be used; each old setting is a line."""
        made = self.read("home=/h:batch=1:count=x:window=2:mempool=4096")
        self.assertEqual([each.partition(" ")[0] for each in made.outdated], [*OUTDATED])
        self.assertEqual(evolve(made, outdated=()), self.read("home=/h:mempool=4096"))

    def test_rpcIsPortOrUrl(self) -> None:
        """The engine is found by its port, or by its URL with the colons escaped."""
        self.assertEqual(self.read("home=/h:rpc=37100").rpc, "http://127.0.0.1:37100")
        self.assertEqual(self.read(r"home=/h:rpc=http\://[\:\:1]\:9").rpc, "http://[::1]:9")

    def test_rpcMayBeSocket(self) -> None:
        """An engine may listen on a Unix socket."""
        self.assertEqual(self.read("home=/h:rpc=/run/rpc.sock").rpc, Path("/run/rpc.sock"))

    def test_relativePathsAreResolved(self) -> None:
        """Paths are made absolute: the engine works elsewhere."""
        made = self.read("home=net/node0:engine=bin/cometbft")
        self.assertEqual(made.home, Path("net/node0").absolute())
        self.assertEqual(made.engine, Path("bin/cometbft").absolute())

    def test_invalidValuesAreNamed(self) -> None:
        """Values that cannot be are refused by name."""
        for words, text in (
            ("home: it must be said", "keep=1"),
            ("hom: the cometbft ledger has no such setting", "hom=/x"),
            ("home: '' is not a path", "home="),
            ("rpc: '0' is not a port", "home=/h:rpc=0"),
            ("rpc: '65536' is not", "home=/h:rpc=65536"),
            ("rpc: 'localhost' is not", "home=/h:rpc=localhost"),
            ("interval: '-1' is not", "home=/h:interval=-1"),
            ("interval: 'nan' is not", "home=/h:interval=nan"),
            ("keep: 'x' is not", "home=/h:keep=x"),
            ("timeout: '0' is not", "home=/h:timeout=0"),
            ("snapshots: '-1' is not", "home=/h:snapshots=-1"),
            ("socket: ", "home=/h:socket=/" + "x" * 107),
            ("home: ", "home=/" + "x" * 107),
        ):
            error = self.assertRaises(InvalidDescription, self.read, text)
            self.assertTrue(str(error).startswith(words), str(error))
