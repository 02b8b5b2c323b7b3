"""
Tests for what the doctor reads of chains and metadata, and for the whole examination.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.subscriptions import KeptPosition
from svcbroker.carriers.mqtt.subscription import KeptSubscription
from svcbroker.carriers.webhook import WebhookRecord
from svcbroker.daemon.config import makeConfig
from svcbroker.doctor import Examination, Finding, Level
from svcbroker.doctor._asking import Answer, unready
from svcbroker.doctor._chains import ChainFacts, readChain
from svcbroker.doctor._metadata import MetadataFacts, readMetadata
from svcbroker.model import InterfaceType, Position
from svcbroker.storage import MetadataFile
from tests.archive.support import ArchiveTestCase
from tests.certificates import makeCertificate
from tools.signedchain import CREATED, STEP

MADE = CREATED / 1000
"""When the chain of the tests was made, in seconds since the epoch."""


class ChainTests(ArchiveTestCase):
    """
    Chains, as they are on disk.
    """

    def setUp(self) -> None:
        super().setUp()
        self.chain = self.makeDirectory(blocks=40)

    def test_wholeChainHasNoLosses(self) -> None:
        facts, growth = readChain(self.directory, "pbft", MADE + 600)
        self.assertEqual((facts.losses, facts.damage, facts.error), ([], [], ""))
        self.assertEqual(facts.height, self.chain.head.height)
        self.assertEqual(facts.time, self.chain.head.timestamp / 1000)
        self.assertFalse(facts.isEngines)
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

    def metadata(
        self, chains: Mapping[str, ChainFacts] | None = None, now: float = MADE
    ) -> MetadataFacts:
        """What is known of the metadata store."""
        return readMetadata(MetadataFacts(dataDir=str(self.dataDir), now=now), chains or {})

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
        chains = {"1": readChain(self.directory, "pbft", MADE)[0]}
        facts = self.metadata(chains, MADE + 86400)
        found = {each.id: each for each in facts.webhooks}
        self.assertEqual(found["failing"].attempts, 12)
        self.assertEqual(found["failing"].waits, 86400 - 5 * STEP / 1000)
        self.assertEqual(found["well"].attempts, 0)
        (reader,) = facts.subscriptions
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
        chains = {"1": readChain(self.directory, "pbft", MADE)[0]}
        facts = self.metadata(chains, MADE + 86400)
        found = {(each.type, each.id): each.blocks for each in facts.subscriptions}
        height = self.chain.head.height
        self.assertEqual(found, {("MQTT", "meter 7"): height - 2, ("STOMP", "reader"): height - 30})
        [session] = [each for each in facts.subscriptions if each.type == "MQTT"]
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
        self.assertEqual(facts.damage, ())
        path.unlink()
        self.assertIn("is missing", self.metadata().lost)

    def test_damagedMetadataAreSeen(self) -> None:
        self.change("UPDATE note SET value = x'00'", path=self.dataDir / "notes.sqlite")
        facts = self.metadata()
        self.assertEqual(len(facts.damage), 4)
        (self.dataDir / "notes.sqlite").write_bytes(b"SQLite")
        self.assertIn("cut short", self.metadata().error)


class ExaminationTests(SynchronousTestCase):
    """
    The whole examination, with the real machine and no network.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()

    def examine(self, **settings: object) -> dict[str, list[Finding]]:
        """The findings of settings, by subject."""
        given = {name.replace("_", "-"): value for name, value in settings.items()}
        ports = dict.fromkeys(("http", "stomp", "mqtt"), "")
        config = makeConfig(ports, {"data-dir": str(self.root / "data")}, given)
        found: dict[str, list[Finding]] = {}
        examination = Examination(config=config, now=MADE, ask=lambda *given: None)
        for each in examination.findings():
            found.setdefault(each.subject, []).append(each)
        return found

    def test_nothingIsWritten(self) -> None:
        self.examine(http="tcp:0:interface=127.0.0.1")
        self.assertEqual(list(self.root.iterdir()), [])

    def test_mistakesOfAllPartsAreFound(self) -> None:
        found = self.examine(
            http="nonsense",
            ledger="pbtf",
            accounts=str(self.root / "none"),
            webhook_secret_file=str(self.root / "none"),
        )
        texts = [each.text for each in found["configuration"] if each.level is Level.PROBLEM]
        self.assertEqual(
            [text.partition(":")[0] for text in texts],
            ["http", "accounts", "ledger", "webhook-secret-file"],
        )

    def test_endpointBehindAProxyOnLoopbackNeedsNoTLS(self) -> None:
        path = self.root / "accounts.toml"
        path.write_text('[accounts.ann]\nroles = ["operator"]\n')
        (found,) = self.examine(mqtt="haproxy:tcp:0:interface=127.0.0.1", accounts=str(path))[
            "mqtt"
        ]
        self.assertIs(found.level, Level.GOOD)

    def test_passwordFilesOfMosquittoAreRead(self) -> None:
        path = self.root / "passwords"
        text = f"mosquitto:passwords={path}:acl={self.root / 'acl'}"
        [found] = self.examine(auth=[text])["accounts"]
        self.assertIs(found.level, Level.PROBLEM)
        self.assertIn(f"cannot read {path}", found.text)
        path.touch(0o600)
        digest = b64encode(bytes(64)).decode("ascii")
        path.write_text(f"ann:$7$101$AAAA${digest}\nbob:$7$210000$AAAA${digest}\n")
        for auth in ([text], [text, "mosquitto:passwords=", "nonsense"]):
            [found] = self.examine(auth=auth)["accounts"]
            self.assertIs(found.level, Level.WARNING)
            self.assertIn("iterations: of ann", found.text)

    def test_socketsOfSystemdAreKnown(self) -> None:
        (found,) = self.examine(http="systemd:name=http")["http"]
        self.assertIn("systemctl list-sockets", found.text)

    def test_certificatesOfEndpointsAreRead(self) -> None:
        key, certificate = makeCertificate(self.root)
        key.chmod(0o644)
        text = f"ssl:0:privateKey={key}:certKey={certificate}:interface=127.0.0.1"
        found = self.examine(mqtt=text, advertise="other.example:8883")["mqtt"]
        self.assertEqual(
            [each.level for each in found],
            [Level.GOOD, Level.WARNING, Level.WARNING, Level.PROBLEM],
        )
        self.assertIn("not for other.example", found[2].text)
        self.assertIn(f"the private key in {key}", found[3].text)

    def test_enginesHomeIsRead(self) -> None:
        home = self.root / "engine"
        (home / "config").mkdir(parents=True)
        (home / "config/config.toml").write_text(
            f'proxy_app = "unix://{home}/abci.sock"\n[rpc]\nladdr = "tcp://0.0.0.0:26657"\n'
        )
        (home / "config/priv_validator_key.json").write_text("{}")
        found = self.examine(ledger=f"cometbft:home={home}")["engine of group 1"]
        self.assertEqual([each.level for each in found], [Level.PROBLEM, Level.WARNING])
        (found,) = self.examine(ledger=f"cometbft:home={home}/x")["engine of group 1"]  # type: ignore[assignment]

    def test_peersThatDoNotAnswerAreWarnedOf(self) -> None:
        (found,) = self.examine(peer=["b:80=http://b.example:80"])["peers"]
        self.assertIn("http://b.example:80", found.text)

    def test_errorOfOneSubjectIsAFinding(self) -> None:
        (self.root / "data").symlink_to(self.root / "data")
        found = self.examine()
        (error,) = found["data directory"]
        self.assertIn(os.strerror(errno.ELOOP), error.text)
        self.assertIn("software", found)

    def test_groupsThatAreNotReadyAreNamed(self) -> None:
        text = '{"groups": {"1": {"ready": false, "reason": "no quorum"}, "2": {"ready": true}}}'
        self.assertEqual(unready(Answer(ahead=0.0, value=json.loads(text))), ["group 1: no quorum"])
        self.assertEqual(unready(Answer(ahead=0.0, value=[1])), [])
        self.assertEqual(unready(None), [])
