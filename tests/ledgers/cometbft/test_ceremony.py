"""
Tests of L{svcbroker.ledgers.cometbft.provisioning}.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Genesis
from svcbroker.ledgers.cometbft._home import EngineKeys, decodeGenesis, publicKey, readValidatorSeed
from svcbroker.ledgers.cometbft.provisioning import (
    MAX_JOIN_REQUEST,
    Address,
    ConfigInvalid,
    JoinRequest,
    JoinRequestInvalid,
    assembleGenesis,
    encodeJoinRequest,
    makeJoinRequest,
    makeKeys,
    ourGenesis,
    parseAddress,
    readJoinRequest,
)
from svcbroker.model import TopicRule
from svcbroker.proofs.cometbft import addressOf


def joinRequest(number: int, **changes: Any) -> JoinRequest:
    """The join request of a node."""
    seed = sha256(b"node %d" % number).digest()
    keys = EngineKeys(nodeId=sha256(seed).hexdigest()[:40], validator=publicKey(seed))
    given: dict[str, Any] = {
        "chain": "chain",
        "name": f"node{number}",
        "p2p": Address(host=f"node{number}.example", port=26656),
        "broker": sha256(b"broker %d" % number).digest(),
        "now": 1_790_000_000.5 + number,
    }
    if "nodeId" in changes:
        keys = evolve(keys, nodeId=changes.pop("nodeId"))
    return makeJoinRequest(seed, keys, **(given | changes))


class JoinRequestTests(SynchronousTestCase):
    """
    One join request.
    """

    def test_requestRoundTrips(self) -> None:
        """A request made of keys in a home can be read, and connected to."""
        home = Path(self.mktemp())
        keys = makeKeys(home, lambda count: bytes(range(count)))
        seed = readValidatorSeed(home)
        assert seed is not None
        made = makeJoinRequest(
            seed,
            keys,
            chain="chain",
            name="node",
            p2p=parseAddress("[2001:db8::1]:26656"),
            broker=bytes(32),
            now=1.5,
        )
        self.assertEqual(readJoinRequest(encodeJoinRequest(made)), made)
        self.assertEqual(made.key, keys.validator)
        self.assertEqual(str(made.peer), f"{keys.nodeId}@[2001:db8::1]:26656")

    def test_changedFieldIsRefused(self) -> None:
        """Each change after the signature shows."""
        other = json.loads(encodeJoinRequest(joinRequest(1, timeouts="wan")))
        for name, value in json.loads(encodeJoinRequest(joinRequest(0))).items():
            if name in {"kind", "chain"}:
                continue
            changed = json.loads(encodeJoinRequest(joinRequest(0)))
            self.assertNotEqual(other[name], value)
            changed[name] = other[name]
            with self.assertRaisesRegex(JoinRequestInvalid, "does not hold"):
                readJoinRequest(json.dumps(changed).encode())

    def test_malformedRequestIsRefused(self) -> None:
        """A malformed join request is refused."""
        for change in (
            lambda value: value.update(more=1),
            lambda value: value.pop("name"),
            lambda value: value.update(kind="other"),
            lambda value: value.update(chain="a b"),
            lambda value: value.update(name=""),
            lambda value: value.update(p2p="host"),
            lambda value: value.update(validator="zz"),
            lambda value: value.update(validator=value["validator"].upper()),
            lambda value: value.update(broker="00"),
            lambda value: value.update(nodeId="00" * 32),
            lambda value: value.update(made=-1),
            lambda value: value.update(timeouts="none"),
        ):
            value = json.loads(encodeJoinRequest(joinRequest(0)))
            change(value)
            self.assertRaises(JoinRequestInvalid, readJoinRequest, json.dumps(value).encode())
        for data in (b"", b"\xff", b"[]", b" " * (MAX_JOIN_REQUEST + 1)):
            self.assertRaises(JoinRequestInvalid, readJoinRequest, data)

    def test_addressesAreParsed(self) -> None:
        """Hosts and ports, and what is neither."""
        self.assertEqual(parseAddress("a.example:1"), Address(host="a.example", port=1))
        self.assertEqual(parseAddress("[::1]:65535"), Address(host="::1", port=65535))
        for text in (
            *("", "a", "a:", ":1", "a:0", "a:65536", "a:1x", "a:99999999", "::1:1", "a b:1"),
            *("a@b:1", "a,b:1", 'a":1', "a/b:1", "[a:1", "\u00e4:1", "a\n:1", "x" * 254 + ":1"),
        ):
            self.assertRaises(ConfigInvalid, parseAddress, text)


class GenesisCeremonyTests(SynchronousTestCase):
    """
    Assembling the genesis.
    """

    def test_orderDoesNotMatter(self) -> None:
        """The genesis is the same bytes for any order and duplicates of the join requests."""
        requests = [joinRequest(number) for number in range(4)]
        first = assembleGenesis(requests)
        for others in (requests[::-1], requests[2:] + requests[:2], [*requests, *requests]):
            self.assertEqual(assembleGenesis(others), first)
        genesis = decodeGenesis(first.genesis)
        self.assertEqual(genesis.chainId, "chain")
        # The latest join request sets the time.
        self.assertEqual(genesis.genesisTime, 1_790_000_003_500_000_000)
        keys = [each.key for each in requests]
        expected = sorted(keys, key=addressOf)
        self.assertEqual([member.key for member in genesis.members], expected)
        self.assertEqual([each.key for each in first.requests], expected)
        self.assertEqual({member.power for member in genesis.members}, {100})

    def test_chainIdFollowsFromGenesis(self) -> None:
        """Our chain's id follows from the engine's genesis."""
        genesis = decodeGenesis(assembleGenesis([joinRequest(0), joinRequest(1)]).genesis)
        ours = ourGenesis(genesis)
        self.assertEqual(Genesis.decode(ours.encoded), ours)
        self.assertEqual((ours.group, ours.created), ("chain", 1_790_000_001_500))
        self.assertEqual(ours.validators, tuple(member.key for member in genesis.members))

    def test_ruleOfTopicsFollowsFromTheRequests(self) -> None:
        """The genesis has it where all ask for it, and requests without it are as they were."""
        requests = [joinRequest(number, topics=TopicRule.UTF8) for number in range(2)]
        self.assertEqual([readJoinRequest(encodeJoinRequest(each)) for each in requests], requests)
        made = assembleGenesis(requests).genesis
        self.assertEqual(json.loads(made)["app_state"], {"topics": "utf8"})
        self.assertIs(ourGenesis(decodeGenesis(made)).topics, TopicRule.UTF8)
        self.assertNotIn(b"topics", encodeJoinRequest(joinRequest(0)))
        plain = assembleGenesis([joinRequest(0)]).genesis
        self.assertNotIn("app_state", json.loads(plain))
        self.assertIs(ourGenesis(decodeGenesis(plain)).topics, TopicRule.PUBLISHED)

    def test_conflictingRequestsAreRefused(self) -> None:
        """Join requests that conflict are refused."""
        good = joinRequest(0)
        cases: list[tuple[list[JoinRequest], str]] = [
            ([], "1 to 256"),
            ([good, joinRequest(1, chain="other")], "several chains: chain, other"),
            ([good, joinRequest(1, timeouts="wan")], "several timeouts: lan, wan"),
            ([good, joinRequest(1, topics=TopicRule.UTF8)], "some join requests have topics=utf8"),
            ([good, joinRequest(0, now=1.0)], "same validator's key"),
            ([good, joinRequest(1, nodeId=good.nodeId)], "same node's key"),
            ([good, joinRequest(1, broker=bytes.fromhex(good.broker))], "same broker's key"),
            ([good, joinRequest(1, name="node0")], "same name"),
            ([good, joinRequest(1, p2p=good.peer.address)], "same address"),
        ]
        for requests, words in cases:
            with self.assertRaisesRegex(JoinRequestInvalid, words):
                assembleGenesis(requests)

    def test_invalidNamesAreRefused(self) -> None:
        """Names that the engine would not take."""
        refused: list[Callable[[], JoinRequest]] = [
            lambda: joinRequest(0, chain="x" * 51),
            lambda: joinRequest(0, name="a b"),
        ]
        for make in refused:
            self.assertRaises(ConfigInvalid, make)
