"""
Tests for L{svcbroker.carriers.webhook.signing}: the broker's keys that sign requests.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

from attrs import evolve
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker import MetadataStore
from svcbroker.carriers.webhook.signing import (
    KEY_TOPIC,
    KEYS,
    MAX_KEYS,
    SigningKey,
    WebhookKeys,
    WebhookSigner,
    keyText,
    parseSecrets,
)
from svcbroker.errors import LedgerUnavailable, ParameterInvalid
from svcbroker.model import EventId
from svcbroker.testing._fixtures import memoryLedger
from tests.carriers.mqtt.support import MetadataFile
from tests.ledgers.pbft.rig import LedgerRig

SECRET = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DAY = 86400


def isSigned(key: bytes, header: bytes, signed: bytes) -> bool:
    """Whether one of the signatures in a header is of a public key."""
    public = Ed25519PublicKey.from_public_bytes(key)
    for each in header.split(b" "):
        version, _, signature = each.partition(b",")
        if version == b"v1a":
            try:
                public.verify(b64decode(signature), signed)
                return True
            except InvalidSignature:
                continue
    return False


class KeyTests(SynchronousTestCase):
    """
    The keys of a group with a chain, and of one without.
    """

    def setUp(self) -> None:
        self.rig = LedgerRig(self).start()
        self.time = 1_700_000_000.0
        self.file = MetadataFile()
        self.store = MetadataStore(self.file, self.rig.clock, maybeDeferred)
        self.keys = self.make()

    def make(self) -> WebhookKeys:
        """The keys of a broker that has just started."""
        ledgers: Any = {"1": self.rig.ledger, "2": memoryLedger(self.rig.clock, "2")}
        keys = WebhookKeys(ledgers, self.store, lambda: self.time)
        keys.load()
        return keys

    def ask(self, call: Any) -> Any:
        """The result of a call, after a second."""
        asked = Deferred.fromCoroutine(call)
        self.rig.run(1)
        return self.successResultOf(asked)

    def current(self, keys: WebhookKeys | None = None) -> list[SigningKey]:
        """The keys that sign now."""
        return [*self.ask((keys or self.keys).current("1"))]

    def records(self) -> int:
        """How many keys the chain certifies."""
        topic = self.rig.ledger.topicState(KEY_TOPIC)
        return 0 if topic is None else topic.sequence

    def record(self, key: SigningKey) -> Any:
        """The record that certifies a key."""
        reading = self.rig.ledger.getEvent(EventId.parse(key.key.eventId))
        self.rig.run(1)
        event = self.successResultOf(reading)
        self.assertEqual(event.topic, KEY_TOPIC)
        return json.loads(event.content)

    def test_chainCertifiesTheFirstKey(self) -> None:
        self.assertEqual([*self.keys.published()], [])
        [key] = self.current()
        self.assertEqual(self.record(key), {"key": key.text})
        self.assertEqual(key.text, keyText(key.key.key))
        self.assertEqual([*self.keys.published()], [key.key])
        self.assertEqual(self.current(), [key])
        self.assertEqual(self.records(), 1)

    def test_groupWithoutChainHasNoKey(self) -> None:
        self.assertEqual(self.ask(self.keys.current("2")), ())
        rotating = Deferred.fromCoroutine(self.keys.rotate("2", 0))
        self.failureResultOf(rotating, ParameterInvalid)

    def test_copyHasNoKey(self) -> None:
        """Its ledger has no private key, and takes no record."""

        def refuse(purpose: str) -> bytes:
            raise LedgerUnavailable("a copy")

        self.patch(self.rig.ledger, "deriveKey", refuse)
        self.assertEqual(self.current(), [])
        rotating = Deferred.fromCoroutine(self.keys.rotate("1", 0))
        self.failureResultOf(rotating, ParameterInvalid)

    def test_keyIsTheSameAfterAStart(self) -> None:
        """It is kept with its number, so that it does not change with the ledger's key."""
        [key] = self.current()
        self.patch(self.rig.ledger, "deriveKey", lambda purpose: bytes(32))
        [again] = self.current(self.make())
        self.assertEqual(again.key, key.key)
        self.assertEqual(again.sign(b"x"), key.sign(b"x"))

    def test_recordOfALostKeyIsFoundAgain(self) -> None:
        """The metadata store is gone: the same key is made, and certified once."""
        [key] = self.current()
        self.store.remove(KEYS, "1")
        [again] = self.current(self.make())
        self.assertEqual(again.key, key.key)
        self.assertEqual(self.records(), 1)

    def test_replacedKeySignsUntilTheOverlapHasPassed(self) -> None:
        [old] = self.current()
        published = self.ask(self.keys.rotate("1", DAY))
        until = int(self.time + DAY) * 1000
        self.assertEqual(published[0], evolve(old.key, until=until))
        _, new = self.current()
        self.assertNotEqual(new.key.key, old.key.key)
        self.assertIsNone(new.key.until)
        self.assertEqual(
            self.record(new), {"key": new.text, "replaces": [old.text], "until": until}
        )
        self.assertEqual(len(self.current(self.make())), 2)
        self.time += DAY
        self.assertEqual(self.current(), [new])
        self.assertEqual([*self.keys.published()], [new.key])

    def test_keyEndsAtOnceWithoutOverlap(self) -> None:
        [old] = self.current()
        [new] = self.ask(self.keys.rotate("1", 0))
        self.assertNotEqual(new.key, old.key.key)
        self.assertEqual([each.key for each in self.current(self.make())], [new])

    def test_keysThatSignTogetherAreFew(self) -> None:
        """One more may come with an overlap of nothing, which ends those before it."""
        self.current()
        for _ in range(MAX_KEYS - 1):
            self.ask(self.keys.rotate("1", DAY))
        self.assertEqual(len(self.current()), MAX_KEYS)
        rotating = Deferred.fromCoroutine(self.keys.rotate("1", DAY))
        self.failureResultOf(rotating, ParameterInvalid)
        self.assertEqual(len(self.ask(self.keys.rotate("1", 0))), 1)

    def test_reprHidesPrivateKeys(self) -> None:
        [key] = self.current()
        private = key.private.private_bytes_raw()
        for each in (repr(key), repr(self.keys._groups)):
            self.assertNotIn(private.hex(), each)
            self.assertNotIn(repr(private)[2:-1], each)

    def test_headerHasBothSignatures(self) -> None:
        """Those of secrets first: libraries that know one kind pass over the other."""
        [key] = self.current()
        given = (b"0123abcd-3-7", b"1700000000", b"{}")
        signed = b".".join(given)
        for options, versions in (
            ({}, [b"v1", b"v1a"]),
            ({"hasSecret": False}, [b"v1a"]),
        ):
            signer = WebhookSigner(parseSecrets(SECRET), **options)
            header = dict(signer.sign("", *given, [key]))[b"webhook-signature"]
            self.assertEqual([each[: each.index(b",")] for each in header.split()], versions)
            self.assertTrue(isSigned(key.key.key, header, signed))
            self.assertFalse(isSigned(key.key.key, header, signed + b" "))
        [(name, header)] = WebhookSigner().sign("", *given, [key])
        self.assertEqual(name, b"webhook-signature")
        self.assertTrue(isSigned(key.key.key, header, signed))
