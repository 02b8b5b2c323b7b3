"""
The files of C{svcbroker net testnet}, without an engine.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.options import ConfigOptions
from svcbroker.ledgers.testnet.blueprint import layOut
from tests.directories import shortDirectory


class LayOutTests(SynchronousTestCase):
    """
    L{layOut}.
    """

    def test_daemonReadsConfigurations(self) -> None:
        """Every broker's configuration is valid, and names the broker by its own address."""
        numbers = iter(range(1000))
        network = layOut(
            shortDirectory(self),
            3,
            Path("/usr/bin/true"),
            20000,
            timeouts="lan",
            now=lambda: 1e9,
            entropy=lambda size: sha256(b"%d" % next(numbers)).digest()[:size],
        )
        for node in network.nodes:
            options = ConfigOptions()
            options.parseOptions([f"--config={node.config}"])
            self.assertEqual(options["config"].advertise, f"127.0.0.1:{node.ports['http']}")
