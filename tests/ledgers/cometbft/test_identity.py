"""
Files that say who a broker is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import ValidatorSet
from svcbroker.ledgers.cometbft._batch import (
    ATTESTATION_NAME,
    KEY_NAME,
    BatchMaker,
    BrokerIdentity,
    IdentityFiles,
    IdentityMissing,
    attest,
    encodeAttestation,
    readBatch,
)
from svcbroker.ledgers.cometbft._home import publicKey
from svcbroker.ledgers.cometbft.provisioning import makeKeys
from svcbroker.model import OpenTopic

from .members import GENESIS, SEEDS, Broker
from .test_layout import counting

CHAIN = GENESIS.chain


class IdentityTests(SynchronousTestCase):
    """
    L{IdentityFiles}.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp())
        self.directory, self.home = self.root / "ledger", self.root / "home"
        self.directory.mkdir(parents=True)
        self.home.mkdir()
        self.entropy = counting()
        self.own = makeKeys(self.home, self.entropy).validator
        self.validators = ValidatorSet(0, (*GENESIS.validators[:3], self.own))

    @property
    def attestation(self) -> Path:
        return self.directory / ATTESTATION_NAME

    def load(
        self, validators: ValidatorSet | None = None, home: Path | None = None
    ) -> BrokerIdentity:
        """The identity, as a start finds it."""
        files = IdentityFiles(directory=self.directory, home=home or self.home)
        return files.load(CHAIN, validators or self.validators, self.entropy)

    def missing(self, pattern: str, **where: Any) -> None:
        """There is none, and it is said why."""
        with self.assertRaisesRegex(IdentityMissing, pattern):
            self.load(**where)

    def test_keyAndAttestationAreMadeOnce(self) -> None:
        """Beside a validator, key and attestation are made once, with mode 0600."""
        identity = self.load()
        self.assertEqual(identity.sponsor, self.own)
        self.assertEqual((self.directory / KEY_NAME).stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.load(), identity)

    def test_batchesAreAccepted(self) -> None:
        """Its batches are taken."""
        maker = BatchMaker(CHAIN, self.load())
        broker = Broker()
        broker.batches = maker
        broker.transactions.sender = maker.sender
        batch = readBatch(broker.batch(OpenTopic(topic="t")), CHAIN)
        self.assertEqual(batch.sponsor, self.own)

    def test_missingAttestationNamesKey(self) -> None:
        """Beside a full node the error names the key that a validator has to attest."""
        self.missing("no validator attests", validators=GENESIS.validatorSet)
        seed = bytes.fromhex((self.directory / KEY_NAME).read_text())
        self.missing(publicKey(seed).hex(), validators=GENESIS.validatorSet)
        self.assertFalse(self.attestation.exists())
        self.attestation.write_bytes(encodeAttestation(attest(SEEDS[1], CHAIN, publicKey(seed))))
        identity = self.load(GENESIS.validatorSet)
        self.assertEqual(identity.sponsor, GENESIS.validators[1])

    def test_unreadableHomeNamesKey(self) -> None:
        """An unreadable home of the engine has the same effect."""
        self.missing("no validator attests", home=self.root / "nowhere")
        self.load()
        self.load(home=self.root / "nowhere")

    def test_ownValidatorReplacesLeavingSponsor(self) -> None:
        """The node's own validator attests when the attesting one has left."""
        seed = self.load().seed
        self.attestation.write_bytes(encodeAttestation(attest(SEEDS[5], CHAIN, publicKey(seed))))
        self.missing("not a validator any more", validators=GENESIS.validatorSet)
        self.assertEqual(self.load().sponsor, self.own)
        self.assertEqual(self.load(home=self.root / "nowhere").sponsor, self.own)

    def test_wrongAttestationIsNamedAndKept(self) -> None:
        """A file that is no valid attestation is left alone and named."""
        broker = publicKey(self.load().seed)
        good = attest(SEEDS[0], CHAIN, broker)
        fields = json.loads(encodeAttestation(good))
        wrong = [
            b"",
            b"{}",
            b"\xff",
            encodeAttestation(attest(SEEDS[0], bytes(32), broker)),
            encodeAttestation(attest(SEEDS[0], CHAIN, publicKey(SEEDS[4]))),
            *(
                json.dumps(fields | change).encode()
                for change in (
                    {"signature": "00" * 64},
                    {"signature": "xyz"},
                    {"validator": fields["validator"][:-2]},
                    {"more": 1},
                )
            ),
        ]
        for data in wrong:
            self.attestation.write_bytes(data)
            self.missing("is not an attestation of this broker")
            self.assertEqual(self.attestation.read_bytes(), data)

    def test_damagedKeyIsKept(self) -> None:
        """A damaged key is not replaced: it may be needed to be put back."""
        self.load()
        for text in ("", "00" * 31, "no key", "00" * 33):
            (self.directory / KEY_NAME).write_text(text)
            self.missing("put it back from a backup")

    def test_systemErrorIsReported(self) -> None:
        """The operating system's error is said."""
        (self.directory / KEY_NAME).mkdir()
        self.missing(KEY_NAME)

    def test_damagedEngineKeyIsReported(self) -> None:
        """Nor is a damaged key of the engine passed over."""
        (self.home / "config/priv_validator_key.json").write_text("{")
        self.missing("priv_validator_key")
