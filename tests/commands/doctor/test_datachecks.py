"""
Tests for L{svcbroker.commands.doctor.datachecks}.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from svcbroker.broker.features import StoredData
from svcbroker.broker.subscriptions._positions import KeptPosition
from svcbroker.broker.subscriptions.feature import IdleSubscription, checkIdle, readIdle
from svcbroker.carriers.mqtt.kept import KeptSubscription
from svcbroker.carriers.webhook.delivery import WebhookRecord
from svcbroker.carriers.webhook.feature import WebhookFacts, checkWebhookFacts, readWebhookFacts
from svcbroker.commands.doctor.datachecks import (
    ChainFacts,
    DirectoryFacts,
    FileFacts,
    MetadataFacts,
    checkChain,
    checkDirectory,
    checkMetadata,
    readChain,
    readData,
    readMetadata,
)
from svcbroker.daemon.auditing import LastAudit, checkAudits
from svcbroker.model import InterfaceType, Position
from svcbroker.net.findings import Finding
from svcbroker.storage import MetadataFile
from tests.archive.support import ArchiveTestCase
from tools.vectors.signedchain import CREATED, STEP

from .support import DATA, DAY, GIB, NOW, CheckTestCase


class DirectoryTests(CheckTestCase):
    """
    The data directory.
    """

    def check(self, *files: FileFacts, **facts: object) -> Iterable[Finding]:
        """The findings of a data directory."""
        return checkDirectory(DirectoryFacts(path=DATA, files=files, **facts))  # type: ignore[arg-type]

    def test_privateDirectoryIsGood(self) -> None:
        self.good(self.check(FileFacts("1/ledger.sqlite", 0o600, 0)), "belongs to root")

    def test_unknownDirectoryIsWarnedOf(self) -> None:
        self.warns(self.check(exists=False), "begins a new chain")

    def test_unreadableDirectoryIsAProblem(self) -> None:
        self.fails(self.check(error="Permission denied", ownerName="svc"), "sudo -u svc")

    def test_directoryOfAnotherUserIsAProblem(self) -> None:
        found = self.check(owner=7, ownerName="svc", user=8, userName="ann")
        self.fails(found, "would run as ann", "chown -R ann: /var/lib/svcbroker")

    def test_filesOfAnotherUserAreAProblem(self) -> None:
        found = self.check(FileFacts("notes.sqlite", 0o600, 0), owner=7, user=7, ownerName="svc")
        self.fails(found, "notes.sqlite", "chown -R svc: /var/lib/svcbroker")

    def test_readableKeysAreAProblem(self) -> None:
        key = FileFacts("1/keys/node0.key", 0o644, 0)
        self.fails(
            self.check(key, mode=0o755), "1/keys/node0.key", "svcbroker net nodes", "rotate all"
        )
        self.good(self.check(key, mode=0o700))

    def test_openDirectoryIsWarnedOf(self) -> None:
        self.warns(self.check(mode=0o750), "chmod -R go= /var/lib/svcbroker")

    def test_leftFilesAreWarnedOf(self) -> None:
        self.warns(self.check(FileFacts("operator.json.new", 0o600, 0)), "rm /var/lib/svcbroker")

    def test_copiesBeforeUpgradesAreWarnedOf(self) -> None:
        copy = FileFacts("1/ledger.sqlite.v3.backup", 0o600, 0, GIB)
        self.warns(self.check(copy), "from before an upgrade, of 1.0 GiB", "erased")

    def test_unservedGroupIsWarnedOf(self) -> None:
        self.warns(self.check(groups=["1", "2"], served=["1"]), "groups 2", "--group 2")


class ChainTests(CheckTestCase):
    """
    The chains.
    """

    def check(self, **facts: object) -> Iterable[Finding]:
        """The findings of the chain of group 1."""
        return checkChain(ChainFacts(group="1", **facts), str(DATA))  # type: ignore[arg-type]

    def test_wholeChainIsGood(self) -> None:
        self.good(self.check(height=1200, time=NOW), "1,200 blocks, the last of 2026-11-22")

    def test_newChainIsGood(self) -> None:
        self.good(self.check(exists=False), "the daemon begins one")
        self.assertEqual(list(self.check(exists=False, ledger="memory")), [])

    def test_olderFormatIsWarnedOf(self) -> None:
        self.warns(self.check(error="schema 3", isOlder=True), "cp -a /var/lib/svcbroker")

    def test_chainThatCannotBeOpenedIsAProblem(self) -> None:
        self.fails(self.check(error="schema 9, newer"), "the daemon does not start")

    def test_lostEndIsAProblem(self) -> None:
        self.fails(self.check(losses=["it ends at block 7"]), "it ends at block 7", "restore")

    def test_damagedKeyIsAProblem(self) -> None:
        self.fails(self.check(damage=["keys/node0.key: it is not a key"]), "from a backup")

    def test_evidenceOfDoubleSigningIsAProblem(self) -> None:
        self.fails(self.check(evidence="evidence.jsonl"), "evidence.jsonl", "rotate all")

    def test_copyIsNotContinued(self) -> None:
        self.fails(self.check(isCopy=True), "svcbroker chain promote /var/lib/svcbroker")
        self.good(self.check(isCopy=True, ledger="copy"))

    def test_chainOfAnotherLedgerIsAProblem(self) -> None:
        self.fails(self.check(height=3, decidedBy="cometbft"), "decided by cometbft")
        self.fails(self.check(height=3, decidedBy="evm"), "decided by evm")


class MetadataTests(CheckTestCase):
    """
    The metadata store.
    """

    def test_wholeStoreIsNotTold(self) -> None:
        """Features tell what is in it."""
        self.assertEqual([*checkMetadata(MetadataFacts())], [])

    def test_damagedStoreIsAProblem(self) -> None:
        for facts, words in (
            (MetadataFacts(error="it is cut short"), ("it is cut short", "from a backup")),
            (MetadataFacts(damage=["note one: changed"]), ("note one",)),
            (MetadataFacts(lost="notes.sqlite is missing"), ("remove notes.sqlite-last",)),
        ):
            self.fails(checkMetadata(facts), *words)


class StoredRecordsTests(CheckTestCase):
    """
    Findings of features about their own records.
    """

    def test_lastAuditIsTold(self) -> None:
        def check(audit: LastAudit | None = None, every: float = 0.0) -> Iterable[Finding]:
            return checkAudits({} if audit is None else {"1": audit}, every, str(DATA), NOW)

        audit = LastAudit(isGood=True, endedAt=NOW - 5 * DAY, seconds=9.0, height=1200)
        self.good(check(audit), "2026-11-17", "block 1,200")
        self.good(check(), "none is scheduled")
        self.warns(check(audit, DAY), "not since", "every 24 hours")
        bad = LastAudit(isGood=False, endedAt=NOW, seconds=9.0, height=7, problem="block 3: x")
        self.fails(check(bad), "is damaged: block 3: x")

    def webhook(self, **facts: Any) -> Iterable[Finding]:
        """The findings of a webhook."""
        return checkWebhookFacts([WebhookFacts(id="w", **facts)], str(DATA))

    def test_failingWebhookIsWarnedOf(self) -> None:
        found = self.warns(self.webhook(attempts=40, waits=3 * DAY), "failed 40 times", "3 days")
        self.assertIn("svcbroker webhook list --data-dir /var/lib/svcbroker", found.remedy)
        self.good(self.webhook(attempts=2))

    def test_pausedWebhookIsWarnedOf(self) -> None:
        self.warns(self.webhook(isPaused=True), "resume w")

    def subscription(self, expiry: int = 0, **facts: Any) -> Iterable[Finding]:
        """The findings of a durable subscription."""
        return checkIdle([IdleSubscription(**facts)], expiry, str(DATA))

    def test_subscriptionFarBehindIsWarnedOf(self) -> None:
        found = self.subscription(id="s", blocks=9000, behind=9 * DAY)
        self.warns(found, "s (9 days, 9,000 blocks)", "delete STOMP s")

    def test_sessionIsDeletedByItsClientId(self) -> None:
        found = self.subscription(
            type=InterfaceType.MQTT, id="meter 7", blocks=9000, behind=9 * DAY
        )
        self.warns(found, "meter 7 (9 days", "delete MQTT 'meter 7'")

    def test_positionThatExpiresSoonIsWarnedOf(self) -> None:
        self.warns(self.subscription(30, id="s", unused=25), "removed after 30 days")
        self.good(self.subscription(id="s", unused=25))
        self.good(self.subscription(30, id="s"))


MADE = CREATED / 1000
"""When the chain of the tests was made, in seconds since the epoch."""


class ChainFactsTests(ArchiveTestCase):
    """
    Chains, as they are on disk.
    """

    def setUp(self) -> None:
        super().setUp()
        self.chain = self.makeDirectory(blocks=60)

    def test_wholeChainHasNoLosses(self) -> None:
        facts, growth = readChain(self.directory, "pbft", MADE + 600)
        self.assertEqual((facts.losses, facts.damage, facts.error), ([], [], ""))
        self.assertEqual(facts.height, self.chain.head.height)
        self.assertEqual(facts.time, self.chain.head.timestamp / 1000)
        self.assertEqual(facts.decidedBy, "pbft")
        # A chain of ten minutes counts as one of an hour.
        size = growth / 24
        self.assertTrue(0.3 < size / self.path.stat().st_size < 1.1, (size, growth))

    def test_oldChainDoesNotGrow(self) -> None:
        _, growth = readChain(self.directory, "pbft", MADE + 2 * 86400)
        self.assertEqual(growth, 0.0)

    def test_unknownChainIsNone(self) -> None:
        facts, _ = readChain(self.dataDir / "2", "pbft", MADE)
        self.assertFalse(facts.exists)

    def test_lostEndIsSeen(self) -> None:
        height = self.chain.head.height
        self.change("DELETE FROM head WHERE height = ?", height)
        facts, _ = readChain(self.directory, "pbft", MADE)
        self.assertEqual(len(facts.losses), 1)
        self.assertIn(f"block {height} had been stored: 1 block is missing", facts.losses[0])

    def test_damagedKeyIsSeen(self) -> None:
        (self.directory / "keys/node0.key").write_text("no key")
        facts, _ = readChain(self.directory, "pbft", MADE)
        self.assertEqual(facts.damage[0], "keys/node0.key: it is not a key")

    def test_missingKeysAreSeen(self) -> None:
        """The daemon does not start without one of them, nor without all."""
        (self.directory / "keys/node2.key").unlink()
        [damage] = readChain(self.directory, "pbft", MADE)[0].damage
        self.assertIn("keys: no file has the key of replica 2, whose public one is ", damage)
        shutil.rmtree(self.directory / "keys")
        [damage] = readChain(self.directory, "pbft", MADE)[0].damage
        self.assertEqual(damage, "keys: there are no keys, so the chain can be read but not go on")
        self.assertEqual(readChain(self.directory, "", MADE)[0].damage, [])
        (self.directory / "copy-of").write_text("{}")
        self.assertEqual(readChain(self.directory, "pbft", MADE)[0].damage, [])

    def test_copyIsSeen(self) -> None:
        (self.directory / "copy-of").write_text("{}")
        self.assertTrue(readChain(self.directory, "pbft", MADE)[0].isCopy)

    def test_evidenceOfDoubleSigningIsSeen(self) -> None:
        path = self.directory / "evidence.jsonl"
        path.write_text("{}")
        facts, _ = readChain(self.directory, "pbft", MADE)
        self.assertEqual(facts.evidence, str(path))

    def test_formatsAreTold(self) -> None:
        self.change("PRAGMA user_version = 99")
        facts, _ = readChain(self.directory, "pbft", MADE)
        self.assertIn("use a newer svcbroker", facts.error)
        self.assertFalse(facts.isOlder)
        self.change("PRAGMA user_version = 2")
        facts, _ = readChain(self.directory, "pbft", MADE)
        self.assertTrue(facts.isOlder)

    def change(self, statement: str, *parameters: object, path: Path | None = None) -> None:
        """Change the chain's file, and leave no log."""
        if statement.startswith("PRAGMA"):
            import sqlite3

            with sqlite3.connect(self.path) as connection:
                connection.execute(statement)
        else:
            super().change(statement, *parameters, path=path)

    def writeEntries(self, entries: Mapping[tuple[str, str], msgspec.Struct]) -> None:
        """Put entries in the place of those in the metadata store."""
        store = MetadataFile.open(self.dataDir / "notes.sqlite")
        store.write(dict.fromkeys(store.load()))
        store.write({key: msgspec.json.encode(value) for key, value in entries.items()})
        store.close()

    def metadata(self) -> MetadataFacts:
        """What is known of the metadata store."""
        return readMetadata(self.dataDir)

    @contextmanager
    def data(self) -> Iterator[StoredData]:
        """The data directory, a day after its chain was made."""
        chains = {"1": readChain(self.directory, "pbft", MADE)[0]}
        with readData(self.dataDir, self.metadata().records, chains, MADE + 86400) as data:
            yield data

    def test_readersOfTheLogAreSeen(self) -> None:
        """A webhook that fails, one that has got on since, and a subscription that is behind."""
        hook = WebhookRecord(
            interfaceType=InterfaceType.RESTFUL,
            group="1",
            filters=("a",),
            tag=None,
            url="https://receiver.example/",
            start=(0, 0),
            failed=(5, 1, 12),
        )
        at = {height: KeptPosition("1", Position(height, 0), (), 19_675) for height in (2, 30)}
        self.writeEntries(
            {
                ("webhook", "failing"): hook,
                ("position", "failing"): at[2],
                ("webhook", "well"): hook,
                ("position", "well"): at[30],
                ("position", "reader"): at[30],
            }
        )
        with self.data() as data:
            found = {each.id: each for each in readWebhookFacts(data)}
            (reader,) = readIdle(data)
        self.assertEqual(found["failing"].attempts, 12)
        self.assertEqual(found["failing"].waits, 86400 - 5 * STEP / 1000)
        self.assertEqual(found["well"].attempts, 0)
        self.assertEqual((reader.id, reader.blocks), ("reader", self.chain.head.height - 30))
        self.assertEqual(reader.behind, 86400 - 31 * STEP / 1000)
        self.assertEqual(reader.unused, int((MADE + 86400) // 86400) - 19_675)

    def test_positionsOfSessionsAreThoseOfTheirClients(self) -> None:
        """Operators do not know their ids. That of a session that is furthest behind counts."""
        at = {height: KeptPosition("1", Position(height, 0), (), height) for height in (2, 30)}
        names = {"one": "#", "other": "a"}
        self.writeEntries(
            {
                **{
                    ("mqtt-subscription", json.dumps(["1", "meter 7", filter])): KeptSubscription(
                        topicFilter=filter, subscriptionId=id
                    )
                    for id, filter in names.items()
                },
                ("position", "one"): at[30],
                ("position", "other"): at[2],
                ("position", "reader"): at[30],
            }
        )
        with self.data() as data:
            idle = [*readIdle(data)]
        found = {(each.type.value, each.id): each.blocks for each in idle}
        height = self.chain.head.height
        self.assertEqual(found, {("MQTT", "meter 7"): height - 2, ("STOMP", "reader"): height - 30})
        [session] = [each for each in idle if each.type is InterfaceType.MQTT]
        self.assertEqual(session.unused, int((MADE + 86400) // 86400) - 30)

    def test_lostMetadataAreSeen(self) -> None:
        path = self.dataDir / "notes.sqlite"
        store = MetadataFile.open(path)
        store.write(dict.fromkeys(store.load()))
        store.close()
        self.assertEqual(self.metadata().lost, "")
        older = path.read_bytes()
        store = MetadataFile.open(path)
        store.write({("other", "new"): b"x"})
        store.close()
        path.write_bytes(older)
        facts = self.metadata()
        self.assertIn("has lost its latest changes", facts.lost)
        self.assertEqual(facts.damage, [])
        path.unlink()
        self.assertIn("is missing", self.metadata().lost)

    def test_damagedMetadataAreSeen(self) -> None:
        self.change("UPDATE note SET value = x'00'", path=self.dataDir / "notes.sqlite")
        facts = self.metadata()
        self.assertEqual(len(facts.damage), 4)
        (self.dataDir / "notes.sqlite").write_bytes(b"SQLite")
        self.assertIn("cut short", self.metadata().error)
