"""
Tests of L{svcbroker.ledgers.cometbft._card}: cards, and the genesis that follows from them.
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
from svcbroker.ledgers.cometbft._card import (
    MAX_CARD,
    Card,
    CardInvalid,
    encodeCard,
    found,
    makeCard,
    ourGenesis,
    parseAddress,
    readCard,
)
from svcbroker.ledgers.cometbft._config import Address, ConfigInvalid
from svcbroker.ledgers.cometbft._genesis import decodeGenesis
from svcbroker.ledgers.cometbft._keyfiles import EngineKeys, makeKeys, publicKey, readValidatorSeed
from svcbroker.proofs.cometbft import addressOf


def card(number: int, **changes: Any) -> Card:
    """The card of a node."""
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
    return makeCard(seed, keys, **(given | changes))


class CardTests(SynchronousTestCase):
    """
    One card.
    """

    def test_made(self) -> None:
        """What is made of keys in a home can be read, and connected to."""
        home = Path(self.mktemp())
        keys = makeKeys(home, lambda count: bytes(range(count)))
        seed = readValidatorSeed(home)
        assert seed is not None
        made = makeCard(
            seed,
            keys,
            chain="chain",
            name="node",
            p2p=parseAddress("[2001:db8::1]:26656"),
            broker=bytes(32),
            now=1.5,
        )
        self.assertEqual(readCard(encodeCard(made)), made)
        self.assertEqual(made.key, keys.validator)
        self.assertEqual(str(made.peer), f"{keys.nodeId}@[2001:db8::1]:26656")

    def test_tampered(self) -> None:
        """Each change after the signature shows."""
        other = json.loads(encodeCard(card(1)))
        for name, value in json.loads(encodeCard(card(0))).items():
            if name in {"kind", "chain"}:
                continue
            changed = json.loads(encodeCard(card(0)))
            self.assertNotEqual(other[name], value)
            changed[name] = other[name]
            with self.assertRaisesRegex(CardInvalid, "does not hold"):
                readCard(json.dumps(changed).encode())

    def test_malformed(self) -> None:
        """What is no card is refused."""
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
        ):
            value = json.loads(encodeCard(card(0)))
            change(value)
            self.assertRaises(CardInvalid, readCard, json.dumps(value).encode())
        for data in (b"", b"\xff", b"[]", b" " * (MAX_CARD + 1)):
            self.assertRaises(CardInvalid, readCard, data)

    def test_addresses(self) -> None:
        """Hosts and ports, and what is neither."""
        self.assertEqual(parseAddress("a.example:1"), Address(host="a.example", port=1))
        self.assertEqual(parseAddress("[::1]:65535"), Address(host="::1", port=65535))
        for text in (
            *("", "a", "a:", ":1", "a:0", "a:65536", "a:1x", "a:99999999", "::1:1", "a b:1"),
            *("a@b:1", "a,b:1", 'a":1', "a/b:1", "[a:1", "\u00e4:1", "a\n:1", "x" * 254 + ":1"),
        ):
            self.assertRaises(ConfigInvalid, parseAddress, text)


class FoundingTests(SynchronousTestCase):
    """
    A network out of cards.
    """

    def test_anyOrder(self) -> None:
        """Whoever puts the cards together, in whatever order and how often, has the same bytes."""
        cards = [card(number) for number in range(4)]
        first = found(cards)
        for others in (cards[::-1], cards[2:] + cards[:2], [*cards, *cards]):
            self.assertEqual(found(others), first)
        genesis = decodeGenesis(first.genesis)
        self.assertEqual(genesis.chainId, "chain")
        # The latest card says when.
        self.assertEqual(genesis.genesisTime, 1_790_000_003_500_000_000)
        keys = [each.key for each in cards]
        expected = sorted(keys, key=addressOf)
        self.assertEqual([member.key for member in genesis.members], expected)
        self.assertEqual([each.key for each in first.cards], expected)
        self.assertEqual({member.power for member in genesis.members}, {1})

    def test_chain(self) -> None:
        """Our chain's id follows from the engine's genesis."""
        genesis = decodeGenesis(found([card(0), card(1)]).genesis)
        ours = ourGenesis(genesis)
        self.assertEqual(Genesis.decode(ours.encoded), ours)
        self.assertEqual((ours.group, ours.created), ("chain", 1_790_000_001_500))
        self.assertEqual(ours.validators, tuple(member.key for member in genesis.members))

    def test_refused(self) -> None:
        """Cards that do not fit together."""
        good = card(0)
        cases: list[tuple[list[Card], str]] = [
            ([], "1 to 256"),
            ([good, card(1, chain="other")], "several chains: chain, other"),
            ([good, card(0, now=1.0)], "same validator's key"),
            ([good, card(1, nodeId=good.nodeId)], "same node's key"),
            ([good, card(1, broker=bytes.fromhex(good.broker))], "same broker's key"),
            ([good, card(1, name="node0")], "same name"),
            ([good, card(1, p2p=good.peer.address)], "same address"),
        ]
        for cards, words in cases:
            with self.assertRaisesRegex(CardInvalid, words):
                found(cards)

    def test_names(self) -> None:
        """Names that the engine would not take."""
        refused: list[Callable[[], Card]] = [
            lambda: card(0, chain="x" * 51),
            lambda: card(0, name="a b"),
        ]
        for make in refused:
            self.assertRaises(ConfigInvalid, make)
