"""
The line between what runs beside an engine and provisioning.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.test_imports import imported, modules

PACKAGE = "svcbroker.ledgers.cometbft"
PROVISIONING = f"{PACKAGE}.provisioning"


class PackageTests(SynchronousTestCase):
    """
    Imports between the two packages.
    """

    def test_brokerDoesNotImportProvisioning(self) -> None:
        """Only commands and L{PROVISIONING} itself import provisioning."""
        importers = {
            name
            for name, path in modules()
            for target in imported(name, path)
            if target.startswith(PROVISIONING)
        }
        commands = ("ledgers.cometbft.enginecommands", "ledgers.testnet.", "commands.")
        allowed = (PROVISIONING, *(f"svcbroker.{each}" for each in commands))
        self.assertEqual([each for each in importers if not each.startswith(allowed)], [])

    def test_provisioningImportsNoLedger(self) -> None:
        """Provisioning needs files, identities and the RPC, but neither ledger nor application."""
        targets = {
            target.removeprefix(f"{PACKAGE}.").partition(".")[0]
            for name, path in modules()
            for target in imported(name, path)
            if name.startswith(PROVISIONING) and target.startswith(f"{PACKAGE}.")
        }
        self.assertEqual(
            targets
            & {"_abciapplication", "_batch", "_cometledger", "_outbox", "_snapshots", "abci"},
            set(),
        )
