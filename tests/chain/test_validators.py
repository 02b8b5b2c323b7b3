"""
Tests of L{svcbroker.chain.ValidatorSet} and L{svcbroker.chain.ValidatorChange}.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    MAX_VALIDATORS,
    ChangeRefused,
    Malformed,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    isUsableKey,
    verifySignature,
)

from . import reference
from .support import GENESIS, KEYS, changeTo, setOf

CHAIN = GENESIS.chain
CURRENT = setOf(0, 0, 1, 2, 3)


def flipped(signature: bytes, at: int) -> bytes:
    """A signature with one bit changed."""
    return signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]


class SetTests(SynchronousTestCase):
    """
    Validator sets.
    """

    def test_hashCoversEveryField(self) -> None:
        """Whatever differs between two sets gives another hash, the generation alone too."""
        sets = [
            setOf(generation, *keys)
            for generation in (0, 1, 2**64 - 1)
            for keys in ((0,), (1,), (0, 1), (1, 0), (0, 1, 2))
        ]
        self.assertEqual(len({each.hash for each in sets}), len(sets))
        for each in sets:
            nodes = reference.Nodes(each.generation, each.keys)
            self.assertEqual((each.encoded, each.hash), (nodes.encoded, nodes.hash))

    def test_sizeOfSetIsBounded(self) -> None:
        """A set has at least one node and at most as many as it may."""
        keys = tuple(number.to_bytes(32, "big") for number in range(MAX_VALIDATORS + 1))
        for size in (1, MAX_VALIDATORS):
            made = ValidatorSet(7, keys[:size])
            self.assertEqual(ValidatorSet.decode(made.encoded), made)
        for bad in ((), keys):
            self.assertRaises(Malformed, ValidatorSet.decode, ValidatorSet(7, bad).encoded)

    def test_duplicateKeyIsRefused(self) -> None:
        """No key is in a set twice."""
        twice = setOf(1, 0, 1, 0)
        self.assertRaises(Malformed, ValidatorSet.decode, twice.encoded)

    def test_encodingHasNoRest(self) -> None:
        """Nothing follows a set, and nothing of it is missing."""
        encoded = CURRENT.encoded
        for bad in (b"", encoded[:7], encoded[:9], encoded[:-1], encoded + b"\0"):
            self.assertRaises(Malformed, ValidatorSet.decode, bad)

    def test_signatureBelongsToItsIndex(self) -> None:
        """A signature is that of the node of its index, and indexes out of range are nobody's."""
        signature = KEYS[1].sign(b"payload")
        self.assertTrue(CURRENT.verify(1, b"payload", signature))
        self.assertFalse(CURRENT.verify(1, b"payloaD", signature))
        for index in (0, 2, -3, -1, 4, 2**16):
            self.assertFalse(CURRENT.verify(index, b"payload", signature))
        for bad in (b"", signature[:-1], signature + b"\0", flipped(signature, 0)):
            self.assertFalse(CURRENT.verify(1, b"payload", bad))

    def test_bytesThatAreNoKeySignNothing(self) -> None:
        """Bytes that are no public key have signed nothing."""
        for key in (b"\xff" * 32, b"\x02" + bytes(31)):
            self.assertFalse(verifySignature(key, b"payload", KEYS[0].sign(b"payload")))


UNUSABLE = {
    "of order 1": b"\x01" + bytes(31),
    "of order 2": b"\xec" + b"\xff" * 30 + b"\x7f",
    "of order 4": bytes(32),
    "of order 8": bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    "with the sign of x = 0": b"\x01" + bytes(30) + b"\x80",
    "not canonical": b"\xee" + b"\xff" * 30 + b"\x7f",
    "no point": b"\x02" + bytes(31),
    "too short": bytes(31),
    "too long": bytes(33),
}
"""Keys that nobody should use."""


class KeyTests(SynchronousTestCase):
    """
    Public keys.
    """

    def test_keysOfPairsAreUsable(self) -> None:
        """Every key of a pair is usable, and half of all numbers are no points."""
        for number in range(64):
            pair = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
            self.assertTrue(isUsableKey(pair.public_key().public_bytes_raw()))
        points = sum(isUsableKey(number.to_bytes(32, "little")) for number in range(2, 1002))
        self.assertTrue(400 < points < 600, points)

    def test_otherKeysAreNot(self) -> None:
        """Keys of low order, in another encoding or of no point are not usable."""
        for name, key in UNUSABLE.items():
            self.assertFalse(isUsableKey(key), name)


class ChangeTests(SynchronousTestCase):
    """
    Changes of the set, with true signatures.
    """

    def check(self, change: ValidatorChange, current: ValidatorSet = CURRENT) -> None:
        """Check a change after it went over the wire. The reference must see it alike."""
        encoded = change.encode()
        nodes = reference.Nodes(current.generation, current.keys)
        expected = reference.following(encoded, CHAIN, nodes)
        read = ValidatorChange.decode(encoded)
        self.assertEqual(read, change)
        try:
            read.check(CHAIN, current)
        except ChangeRefused:
            self.assertIsNone(expected)
            raise
        assert expected is not None
        self.assertEqual(expected.hash, read.following.hash)

    def refuse(self, words: str, change: ValidatorChange, current: ValidatorSet = CURRENT) -> None:
        """The change is refused for the reason in C{words}."""
        refused = self.assertRaises(ChangeRefused, self.check, change, current)
        self.assertIn(words, str(refused))

    def approved(self, *indexes: int) -> ValidatorChange:
        """A change to other nodes that some of the four approve."""
        return changeTo(0, 1, 2, 4, approving=indexes)

    def test_anyQuorumApprovesChange(self) -> None:
        """Any quorum of the old set may let nodes go, come, and get new keys."""
        for left in range(4):
            self.check(self.approved(*(index for index in range(4) if index != left)))
        for keys in ((4, 5, 6), (0,), (0, 1, 2, 3), (3, 2, 1, 0), (0, 1, 2, 3, 4, 5, 6)):
            self.check(changeTo(*keys))
        self.check(changeTo(4, since=(5,), generation=9), setOf(9, 5))

    def test_generationsAreConsecutive(self) -> None:
        """A set is followed by that of the next generation alone."""
        for generation in (1, 2, 2**64 - 2):
            self.refuse("does not follow", changeTo(4, 5, generation=generation))
        following = setOf(0, 4, 5)
        payload = changePayload(CHAIN, CURRENT, following)
        again = ValidatorChange(
            following=following,
            approvals=tuple((index, KEYS[index].sign(payload)) for index in range(4)),
            acceptances=tuple(KEYS[index].sign(payload) for index in (4, 5)),
        )
        self.refuse("set 0 does not follow set 0", again)

    def test_tooFewApprovalsAreRefused(self) -> None:
        """Fewer than a quorum of the old set cannot change it, whoever accepts."""
        for indexes in ((), (0,), (1, 3)):
            self.refuse("quorum", self.approved(*indexes))
        since = (0, 1, 2, 3, 4, 5, 6)
        four = changeTo(0, 1, since=since, approving=(0, 1, 2, 3))
        self.refuse("quorum", four, setOf(0, *since))
        five = changeTo(0, 1, since=since, approving=(0, 1, 2, 3, 6))
        self.check(five, setOf(0, *since))

    def test_duplicateApprovalIsRefused(self) -> None:
        """A validator approves once."""
        self.refuse("rising order", self.approved(0, 1, 1))
        self.refuse("rising order", self.approved(0, 1, 2, 2))

    def test_unorderedApprovalsAreRefused(self) -> None:
        """Approvals come by rising index, so that the same ones are always the same bytes."""
        self.refuse("rising order", self.approved(0, 2, 1))
        self.refuse("rising order", self.approved(3, 2, 1, 0))

    def test_foreignApprovalIsRefused(self) -> None:
        """A foreign approval is refused, even beyond a quorum."""
        good = self.approved(0, 1, 2)
        signature = good.approvals[0][1]
        for index in (4, 2**16 - 1):
            more = evolve(good, approvals=(*good.approvals, (index, signature)))
            self.refuse(f"validator {index}", more)

    def test_forgedApprovalIsRefused(self) -> None:
        """Each approval holds to the last bit, also beyond a quorum."""
        good = self.approved(0, 1, 2, 3)
        for place, (index, signature) in enumerate(good.approvals):
            for at in (0, 31, 32, 63):
                approvals = list(good.approvals)
                approvals[place] = (index, flipped(signature, at))
                self.refuse(f"validator {index}", evolve(good, approvals=tuple(approvals)))
        (_, first), (_, second), *others = good.approvals
        exchanged = ((0, second), (1, first), *others)
        self.refuse("approval of validator 0", evolve(good, approvals=exchanged))

    def test_everyNewKeyMustAccept(self) -> None:
        """Each key of the new set is somebody's who has accepted, in its place."""
        good = changeTo(0, 4, 5)
        acceptances: Sequence[bytes] = good.acceptances
        for place in range(3):
            for other in (bytes(64), flipped(acceptances[place], 63), acceptances[place - 1]):
                wrong = (*acceptances[:place], other, *acceptances[place + 1 :])
                self.refuse(
                    f"validator {place} of the new set has not", evolve(good, acceptances=wrong)
                )

    def test_signaturesAreForOneSet(self) -> None:
        """Signatures are for one new set and no other."""
        good, other = changeTo(0, 4), changeTo(4, 0)
        self.refuse("approval", evolve(other, approvals=good.approvals))
        self.refuse("accepted", evolve(other, acceptances=good.acceptances))

    def test_signaturesAreForOneChain(self) -> None:
        """Signatures of one chain are worth nothing on another, though the keys are the same."""
        self.refuse("approval", changeTo(0, 4, chain=bytes(32)))

    def test_approvalsDoNotCountTwice(self) -> None:
        """Once the set has gone on, no approval counts again, though the same keys come back."""
        away = changeTo(4, 5)
        back = changeTo(0, 1, 2, 3, since=(4, 5), generation=1)
        self.check(away)
        self.check(back, away.following)
        self.assertEqual(back.following.keys, CURRENT.keys)
        self.refuse("does not follow", away, back.following)
        # Under another number it is another set, which nobody has signed for.
        renamed = evolve(away, following=setOf(3, 4, 5))
        self.refuse("approval of validator 0", renamed, back.following)

    def test_payloadCoversEveryField(self) -> None:
        """Whatever differs between two changes differs in what is signed."""
        sets = [setOf(0, 0), setOf(1, 0), setOf(0, 1)]
        payloads = {
            changePayload(chain, current, following)
            for chain in (CHAIN, bytes(32))
            for current in sets
            for following in sets
        }
        self.assertEqual(len(payloads), 18)
        self.assertEqual({len(payload) for payload in payloads}, {123})
        self.assertEqual(
            changePayload(CHAIN, sets[0], sets[1]),
            reference.agreement(
                CHAIN, reference.Nodes(0, sets[0].keys), reference.Nodes(1, sets[1].keys)
            ),
        )
