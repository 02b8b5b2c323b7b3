"""
Light verification, on what a real engine answered and on chains made here.
"""

from __future__ import annotations

import ast
from base64 import b64encode
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import cometbft
from svcbroker.proofs.cometbft import (
    Base64,
    BlockFlag,
    Commit,
    EngineHeader,
    Hex,
    Instant,
    LightBlock,
    LightBlockInvalid,
    PublicKey,
    Trust,
    Validator,
    headerHash,
    makeLightBlock,
    membersOf,
    validatorsHash,
    verifyLightBlock,
)
from svcbroker.proofs.cometbft._light import Vote
from svcbroker.proofs.cometbft._values import toBuiltins

from ...ledgers.cometbft.support import (
    START,
    FakeChain,
    Node,
    dataHash,
    decoded,
    hashOf,
    recorded,
    recordedGenesis,
    recordedLightBlock,
    recordedTransactions,
    replaceHeader,
    trustOf,
)

FOUR = [Node.numbered(number) for number in range(1, 5)]
FIVE = [*FOUR, Node.numbered(5)]


class RecordedTests(SynchronousTestCase):
    """
    A chain that a real network of four has decided.
    """

    def test_headerHashesMatchEngine(self) -> None:
        """The hashes of headers are the engine's, of the first one too, which follows nothing."""
        metas = recorded("blockchain_minHeight_1_maxHeight_5")["block_metas"]
        self.assertEqual(
            [headerHash(decoded(EngineHeader, meta["header"])).hex().upper() for meta in metas],
            [meta["block_id"]["hash"] for meta in metas],
        )
        self.assertEqual([meta["header"]["height"] for meta in metas], ["5", "4", "3", "2", "1"])

    def test_validatorsHashMatchesEngine(self) -> None:
        """The hash of the validators is the engine's, from its answer and from the genesis."""
        block = recordedLightBlock()
        self.assertEqual(validatorsHash(block.validators), block.header.validatorsHash)
        self.assertEqual(validatorsHash(recordedGenesis().members), block.header.validatorsHash)

    def test_dataHashMatchesEngine(self) -> None:
        """The hash of a block's transactions is the engine's."""
        self.assertEqual(dataHash(recordedTransactions()), recordedLightBlock().header.dataHash)

    def test_recordedCommitVerifies(self) -> None:
        """The block follows from the genesis, with everybody's vote."""
        block = recordedLightBlock()
        self.assertNotIn(None, block.votes)
        trust = trustOf(recordedGenesis()).follow(block)
        self.assertEqual(trust, Trust.ofHeader(block.header))
        self.assertEqual(trust.hash.hex().upper(), recorded("block_height_3")["block_id"]["hash"])

    def test_lightBlockRoundTripsJson(self) -> None:
        """A light block goes through JSON and comes out as it was."""
        block = recordedLightBlock()
        text = msgspec.json.encode(block.toJson())
        self.assertEqual(LightBlock.fromJson(msgspec.json.decode(text)), block)
        self.assertLess(len(text), 3000)

    def test_changedByteIsFound(self) -> None:
        """Whatever is changed in a light block, at any place, is found."""
        value = msgspec.json.decode(msgspec.json.encode(recordedLightBlock().toJson()))
        trust = trustOf(recordedGenesis())
        trust.follow(LightBlock.fromJson(value))
        count = 0
        for changed in variants(value):
            count += 1
            try:
                trust.follow(LightBlock.fromJson(changed))
            except LightBlockInvalid:
                continue
            self.fail(f"this was not found: {changed}")
        self.assertGreater(count, 1500)

    def test_missingFieldIsFound(self) -> None:
        """A light block has all of its fields, and no others."""
        value = recordedLightBlock().toJson()
        for name in value:
            with self.assertRaises(LightBlockInvalid):
                LightBlock.fromJson({k: v for k, v in value.items() if k != name})
        for name in value["header"]:
            header = {k: v for k, v in value["header"].items() if k != name}
            with self.assertRaises(LightBlockInvalid):
                LightBlock.fromJson(value | {"header": header})
        with self.assertRaises(LightBlockInvalid):
            LightBlock.fromJson(value | {"more": 1})

    def test_otherJsonIsRefused(self) -> None:
        """Other JSON is refused in the same words."""
        values: list[Any] = [None, 1, [], {}, "text", [[[]]]]
        for value in values:
            with self.assertRaises(LightBlockInvalid):
                LightBlock.fromJson(value)


def variants(value: Any) -> Iterator[Any]:
    """All of JSON in which one character or one number is another one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for changed in variants(inner):
                yield value | {key: changed}
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            for changed in variants(inner):
                yield [*value[:index], changed, *value[index + 1 :]]
    elif isinstance(value, int):
        yield value + 1
        yield value - 1
        # It would be the same in 64 bits.
        yield value + 2**64
    elif isinstance(value, str):
        for index, character in enumerate(value):
            other = "1" if character == "0" else "0"
            yield value[:index] + other + value[index + 1 :]
            if character.lower() != character:
                yield value[:index] + character.lower() + value[index + 1 :]
        yield value + "0"


class VerifyTests(SynchronousTestCase):
    """
    L{verifyLightBlock} and L{Trust} on chains made here.
    """

    def refused(self, words: str, block: LightBlock, trust: Trust) -> None:
        """Following says what is wrong."""
        error = self.assertRaises(LightBlockInvalid, trust.follow, block)
        self.assertIn(words, str(error))

    def test_threeOfFourSuffice(self) -> None:
        """One of four need not vote."""
        chain = FakeChain(FOUR)
        trust = trustOf(chain.genesis())
        trust.follow(chain.add(voters=FOUR[:3]))

    def test_twoOfFourDoNotSuffice(self) -> None:
        """Two of four may not be absent."""
        chain = FakeChain(FOUR)
        trust = trustOf(chain.genesis())
        self.refused("20 are not more than two thirds of 40", chain.add(voters=FOUR[:2]), trust)

    def test_twoThirdsDoNotSuffice(self) -> None:
        """Two thirds are not more than two thirds."""
        chain = FakeChain(FOUR[:3])
        trust = trustOf(chain.genesis())
        self.refused("two thirds", chain.add(voters=FOUR[:2]), trust)

    def test_powerDecidesNotCount(self) -> None:
        """Power counts, not heads."""
        nodes = [Node.numbered(1, 100), *FOUR[1:]]
        chain = FakeChain(nodes)
        trust = trustOf(chain.genesis())
        trust = trust.follow(chain.add(voters=nodes[:1]))
        self.refused("two thirds", chain.add(voters=nodes[1:]), trust)

    def test_otherChainIsRefused(self) -> None:
        """A block of another chain does not follow, whoever decided it."""
        trust = trustOf(FakeChain(FOUR).genesis())
        self.refused("another chain", FakeChain(FOUR, chainId="other").add(), trust)

    def test_unknownValidatorsAreRefused(self) -> None:
        """Validators that nobody named decide nothing."""
        trust = trustOf(FakeChain(FOUR).genesis())
        self.refused("not those that decide", FakeChain(FIVE).add(), trust)

    def test_headerMustNameItsValidators(self) -> None:
        """The header names those that decide it."""
        chain = FakeChain(FOUR)
        trust = trustOf(chain.genesis())
        block = chain.add(change=replaceHeader(validatorsHash=hashOf(FIVE)))
        self.refused("names other validators", block, trust)

    def test_repeatedValidatorIsRefused(self) -> None:
        """A set that names a node twice is none, even where its hash is trusted."""
        block = FakeChain([FOUR[0], FOUR[0]]).add()
        with self.assertRaises(LightBlockInvalid):
            verifyLightBlock(block, "fake", block.header.validatorsHash)

    def test_emptySetIsRefused(self) -> None:
        """No validators decide nothing."""
        block = msgspec.structs.replace(FakeChain(FOUR).add(), votes=(), validators=())
        with self.assertRaises(LightBlockInvalid):
            verifyLightBlock(block, "fake", validatorsHash(()))

    def test_extraVoteIsRefused(self) -> None:
        """There are as many votes as validators."""
        chain = FakeChain(FOUR)
        trust = trustOf(chain.genesis())
        block = chain.add()
        self.refused(
            "more votes than validators",
            msgspec.structs.replace(block, votes=(*block.votes, None)),
            trust,
        )

    def test_invalidVoteIsRefusedBesideQuorum(self) -> None:
        """A vote that does not hold is found although the others are enough."""
        chain = FakeChain(FOUR)
        trust = trustOf(chain.genesis())
        block = chain.add()
        votes = [*block.votes[:3], Vote(START, Base64(bytes(64)))]
        self.refused(
            "validator 3 does not hold", msgspec.structs.replace(block, votes=tuple(votes)), trust
        )

    def test_trustFollowsChanges(self) -> None:
        """Trust goes from set to set; blocks between the changes may be left out."""
        chain = FakeChain(FOUR)
        genesis = chain.genesis()
        blocks = [chain.add() for _ in range(3)]
        blocks.append(chain.add(after=FIVE))
        blocks.extend(chain.add() for _ in range(3))
        blocks.append(chain.add(after=FIVE[1:]))
        blocks.extend(chain.add() for _ in range(3))
        trust = trustOf(genesis)
        last = Trust.ofHeader(blocks[-1].header)
        self.assertEqual(reduce(Trust.follow, blocks, trust), last)
        self.assertEqual(reduce(Trust.follow, [blocks[3], blocks[7], blocks[10]], trust), last)
        for missing in ([blocks[3], blocks[10]], [blocks[7], blocks[10]], [blocks[10]]):
            with self.assertRaises(LightBlockInvalid):
                reduce(Trust.follow, missing, trust)

    def test_heightsMustRise(self) -> None:
        """Heights rise."""
        chain = FakeChain(FOUR)
        trust = trustOf(chain.genesis())
        first, second = chain.add(), chain.add()
        self.refused("block 1 is not after block 2", first, trust.follow(second))
        self.refused("block 2 is not after block 2", second, trust.follow(second))

    def test_parentMustMatch(self) -> None:
        """The next block names the one before it."""
        chain, other = FakeChain(FOUR), FakeChain(FOUR)
        trust = trustOf(chain.genesis()).follow(chain.add())
        other.add(change=replaceHeader(appHash=Hex(bytes(32))))
        self.refused("block 2 does not follow block 1", other.add(), trust)
        trust.follow(chain.add())

    def test_timeMustRise(self) -> None:
        """Time goes on."""
        chain = FakeChain(FOUR)
        trust = trustOf(chain.genesis()).follow(chain.add())
        chain.add()
        self.refused("older", chain.add(change=replaceHeader(time=START)), trust)


class MakeTests(SynchronousTestCase):
    """
    L{makeLightBlock}.
    """

    def make(self, **changes: Any) -> LightBlock:
        """Block 3 of the recorded network, with one validator's entry in the commit changed."""
        signed = recorded("commit_height_3")["signed_header"]
        signed["commit"]["signatures"][1].update(changes)
        return makeLightBlock(
            decoded(EngineHeader, signed["header"]),
            decoded(Commit, signed["commit"]),
            decoded(tuple[Validator, ...], recorded("validators")["validators"]),
        )

    def check(self, block: LightBlock) -> None:
        """The vote is left out, and the others are enough."""
        self.assertIsNone(block.votes[1])
        self.assertEqual(block.votes.count(None), 1)
        trustOf(recordedGenesis()).follow(block)

    def test_absentVotesAreLeftOut(self) -> None:
        """A validator that did not vote has no vote."""
        self.check(
            self.make(
                block_id_flag=BlockFlag.ABSENT,
                validator_address="",
                timestamp="0001-01-01T00:00:00Z",
                signature=None,
            )
        )

    def test_nilVotesDoNotCount(self) -> None:
        """A vote for no block does not count."""
        self.check(self.make(block_id_flag=BlockFlag.NIL))

    def test_invalidSignaturesAreLeftOut(self) -> None:
        """A signature that does not hold is left out; so is one that is none."""
        self.check(self.make(signature=b64encode(bytes(64)).decode()))
        self.check(self.make(signature=b64encode(b"x").decode()))

    def test_missingEntriesCountAsAbsent(self) -> None:
        """A commit that names too few is taken for one in which the others are absent."""
        signed = recorded("commit_height_3")["signed_header"]
        del signed["commit"]["signatures"][1:]
        block = makeLightBlock(
            decoded(EngineHeader, signed["header"]),
            decoded(Commit, signed["commit"]),
            decoded(tuple[Validator, ...], recorded("validators")["validators"]),
        )
        self.assertEqual(block.votes.count(None), 3)

    def test_foreignKeyTypesAreRefused(self) -> None:
        """Validators with keys of other kinds are not for us."""
        for kind, size in (("Secp256k1", 33), ("Secp256k1", 32), ("Ed25519", 31)):
            key = PublicKey(type=f"tendermint/PubKey{kind}", value=Base64(bytes(size)))
            with self.assertRaises(LightBlockInvalid):
                membersOf([Validator(pubKey=key, power=1)])


class InstantTests(SynchronousTestCase):
    """
    Times as the engine writes them.
    """

    def test_instantsRoundTrip(self) -> None:
        """Each is written as it was read."""
        for text, number in (
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:01.5Z", 1_500_000_000),
            ("2026-11-20T11:57:41.11832109Z", 1_795_175_861_118_321_090),
            ("0001-01-01T00:00:00Z", -62_135_596_800 * 10**9),
            ("9999-12-31T23:59:59.999999999Z", 253_402_300_800 * 10**9 - 1),
        ):
            self.assertEqual(Instant.parse(text), number)
            self.assertEqual(toBuiltins(Instant(number)), text)

    def test_malformedInstantsAreRefused(self) -> None:
        """A text that is no time in UTC is refused."""
        for text in ("", "2026-11-20", "2026-11-20T11:57:41", "2026-13-20T11:57:41Z",
                     "2026-11-20T11:57:41+01:00", "2026-11-20T11:57:41.Z",
                     "2026-11-20T11:57:41.1234567890Z", "٢026-11-20T11:57:41Z"):  # fmt: skip
            with self.assertRaises(ValueError):
                Instant.parse(text)


class PurityTests(SynchronousTestCase):
    """
    Whoever verifies offline needs neither Twisted nor anything that has a clock or a network.
    """

    def test_verificationImportsLittle(self) -> None:
        """The modules of verification import themselves, the chain, and little else."""
        pure = {"wire", "_values", "_light"}
        others = {"__future__", "attrs", "base64", "binascii", "collections", "cryptography"}
        others |= {
            "datetime",
            "enum",
            "functools",
            "hashlib",
            "msgspec",
            "nacl",
            "re",
            "struct",
            "typing",
            "zlib",
        }
        for module in pure:
            path = Path(cometbft.__file__).parent / f"{module}.py"
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Import):
                    names = {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    names = {(node.module or "").split(".")[0]}
                else:
                    continue
                self.assertLessEqual(names, pure | others | {"chain"}, module)
