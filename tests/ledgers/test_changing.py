"""
Tests of L{svcbroker.ledgers.cometbft.enginecommands.networkfiles}: a change of the nodes on its
way from one to the next.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import ValidatorSet
from svcbroker.ledgers.cometbft.enginecommands.networkfiles import (
    MAX_DOCUMENT,
    ChangeDocument,
    DocumentInvalid,
    mergeChanges,
    proposeChange,
    readChange,
)

CHAIN = sha256(b"a chain").digest()
SEEDS = [sha256(b"node %d" % number).digest() for number in range(6)]
KEYS = [
    Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() for seed in SEEDS
]
FOUR = ValidatorSet(3, tuple(sorted(KEYS[:4])))


def order(keys: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(sorted(keys))


def grow() -> ChangeDocument:
    """A fifth node comes."""
    return proposeChange(CHAIN, FOUR, add=[KEYS[4]], remove=[], order=order)


class ProposalTests(SynchronousTestCase):
    """
    Tests for the changes that can be proposed.
    """

    def test_proposalNamesBothSets(self) -> None:
        """The new set is the next one, in order; what comes and goes is told."""
        document = proposeChange(CHAIN, FOUR, add=[KEYS[4]], remove=[KEYS[0]], order=order)
        self.assertEqual(document.following, ValidatorSet(4, order(KEYS[1:5])))
        self.assertEqual((document.added, document.removed), ([KEYS[4]], [KEYS[0]]))
        self.assertEqual(document.neededApprovals, 3)

    def test_invalidProposalsAreRefused(self) -> None:
        """A proposal that changes nothing, or cannot be, is refused with the reason."""
        for add, remove, words in [
            ([KEYS[0]], [], "is in the set already"),
            ([], [KEYS[4]], "is not in the set"),
            ([], [], "nothing would change"),
            ([], KEYS[:4], "1 to 256 validators, not 0"),
            ([sha256(b"%d" % i).digest() for i in range(253)], [], "1 to 256 validators, not 257"),
        ]:
            with self.assertRaisesRegex(DocumentInvalid, words):
                proposeChange(CHAIN, FOUR, add=add, remove=remove, order=order)


class SigningTests(SynchronousTestCase):
    """
    From a proposal to a change that the chain takes.
    """

    def test_mergedSignaturesMakeAValidChange(self) -> None:
        """Copies that were signed apart are one change, and it holds on the chain."""
        one, other = grow(), grow()
        for number in (0, 1, 4):
            one = one.sign(SEEDS[number])
            self.assertFalse(one.isComplete)
        for number in (1, 2, 3):
            other = readChange(other.encode()).sign(SEEDS[number])
        whole = mergeChanges([one, other])
        self.assertTrue(whole.isComplete)
        self.assertEqual((whole.approvals, whole.missing), (4, []))
        whole.toChange().check(CHAIN, FOUR)

    def test_quorumSuffices(self) -> None:
        """A validator that leaves need not agree, if a quorum does."""
        document = proposeChange(CHAIN, FOUR, add=[], remove=[KEYS[0]], order=order)
        for number in (1, 2, 3):
            document = document.sign(SEEDS[number])
        document.toChange().check(CHAIN, FOUR)
        self.assertEqual(readChange(document.encode()), document)

    def test_missingSignersAreNamed(self) -> None:
        """It says who has still to sign."""
        document = grow().sign(SEEDS[0]).sign(SEEDS[1])
        with self.assertRaises(DocumentInvalid) as caught:
            document.toChange()
        text = str(caught.exception)
        self.assertIn("1 more of the current set", text)
        for number in (2, 3, 4):
            self.assertIn(KEYS[number].hex()[:12], text)

    def test_foreignKeysCannotSign(self) -> None:
        """A key in neither set has no say."""
        self.assertRaises(DocumentInvalid, grow().sign, SEEDS[5])

    def test_signingTwiceChangesNothing(self) -> None:
        """To sign twice changes nothing."""
        once = grow().sign(SEEDS[0])
        self.assertEqual(once.sign(SEEDS[0]), once)

    def test_differentChangesCannotBeMerged(self) -> None:
        """Different changes, and those of other chains, are not put together."""
        shrunk = proposeChange(CHAIN, FOUR, add=[], remove=[KEYS[0]], order=order)
        elsewhere = proposeChange(bytes(32), FOUR, add=[KEYS[4]], remove=[], order=order)
        later = ValidatorSet(4, FOUR.keys)
        again = proposeChange(CHAIN, later, add=[KEYS[4]], remove=[], order=order)
        for other in (shrunk, elsewhere, again):
            self.assertRaises(DocumentInvalid, mergeChanges, [grow(), other])


class ReadingTests(SynchronousTestCase):
    """
    Documents from elsewhere.
    """

    def refused(self, change: Callable[[dict[str, Any]], object]) -> str:
        """The reason why a signed document is refused once something in it is changed."""
        value = json.loads(grow().sign(SEEDS[0]).sign(SEEDS[4]).encode())
        change(value)
        with self.assertRaises(DocumentInvalid) as caught:
            readChange(json.dumps(value).encode())
        return str(caught.exception)

    def test_tamperedChangesAreDetected(self) -> None:
        """Whatever is changed after a signature shows."""
        stranger = KEYS[5].hex()
        for change in (
            lambda value: value.update(chain="00" * 32),
            lambda value: value.update(generation=4),
            lambda value: value["following"].__setitem__(0, stranger),
            lambda value: value["following"].append(stranger),
            lambda value: value["current"].pop(),
            lambda value: value["following"].reverse(),
            lambda value: value["signatures"].update({KEYS[1].hex(): "00" * 64}),
            lambda value: value["signatures"].update(
                {KEYS[1].hex(): value["signatures"][KEYS[0].hex()]}
            ),
            lambda value: value["signatures"].update({stranger: "00" * 64}),
        ):
            self.assertIn("does not hold", self.refused(change))

    def test_malformedDocumentsAreRefused(self) -> None:
        """Data that is no document is refused as such."""
        for change, words in (
            (lambda value: value.update(more=1), "not a change"),
            (lambda value: value.pop("chain"), "not a change"),
            (lambda value: value.update(kind="other"), "not a change"),
            (lambda value: value.update(generation=-1), "no set"),
            (lambda value: value.update(generation=2**64), "no set"),
            (lambda value: value.update(chain="xyz"), "hexadecimal"),
            (lambda value: value.update(chain="00"), "hexadecimal"),
            (lambda value: value["following"].append("0"), "hexadecimal"),
            (lambda value: value["following"].append(value["following"][0]), "twice"),
            (lambda value: value.update(following=[]), "1 to 256"),
            (lambda value: value.update(following=value["current"][::-1]), "changes nothing"),
        ):
            self.assertIn(words, self.refused(change))
        for data in (b"", b"\xff", b"[]", b"{}", b" " * (MAX_DOCUMENT + 1)):
            self.assertRaises(DocumentInvalid, readChange, data)
