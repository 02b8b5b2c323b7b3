"""
The engine's nodes, from what a real network of four answered.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft._home import EngineGenesis, namesOf
from svcbroker.ledgers.cometbft._networkwatch import (
    Picture,
    healthOf,
    nodeCount,
    nodeRecords,
    takePicture,
)
from svcbroker.ledgers.cometbft._rpc import EngineRpc
from svcbroker.ledgers.cometbft.provisioning import makeValidator
from svcbroker.model import Health, NodeRecord, NodeType
from svcbroker.net.http import HttpClient
from svcbroker.proofs.cometbft import Instant

from .fakeengine import FakeEngine
from .support import START, recorded, recordedGenesis

BLOCK_TIME = Instant.parse(recorded("header_height_3")["header"]["time"]) // 10**9
SOON = BLOCK_TIME + 5
MUCH_LATER = BLOCK_TIME + 3600


class AdminCase(SynchronousTestCase):
    """
    An engine whose answers a test changes before it takes the picture.
    """

    def setUp(self) -> None:
        self.engine = FakeEngine()
        self.net = recorded("net_info")
        self.state = recorded("dump_consensus_state")
        self.status = recorded("status")
        self.validators = recorded("validators")
        self.commit = recorded("commit_height_3")
        self.status["sync_info"]["latest_block_height"] = "3"
        for name, value in (
            ("net_info", self.net),
            ("dump_consensus_state", self.state),
            ("status", self.status),
            ("validators", self.validators),
            ("commit", self.commit),
        ):
            self.engine.answers[name] = lambda parameters, value=value: value  # type: ignore[misc]
        self.names = dict(namesOf(recordedGenesis()))
        self.keys = [self.names[f"node{index}"] for index in range(4)]

    def picture(self) -> Picture:
        """Take the engine's picture."""
        rpc = EngineRpc(HttpClient(self.engine.agent, Clock()), "http://127.0.0.1:1")
        asked = Deferred.fromCoroutine(takePicture(rpc))
        # One request follows from the answer to another.
        for _ in range(4):
            self.engine.agent.flush()
        return self.successResultOf(asked)

    def records(self, now: float = SOON, **more: Any) -> list[NodeRecord]:
        """The nodes."""
        return list(nodeRecords(self.picture(), now, self.names, **more))

    def of(self, index: int, **more: Any) -> NodeRecord:
        """The record of one of the validators."""
        (record,) = (each for each in self.records(**more) if each.nodeId == self.keys[index])
        return record

    def health(self, now: float = SOON, wanted: Collection[str] | None = None) -> Health:
        """Whether the engine is ready."""
        picture = self.picture()
        return healthOf(picture, nodeRecords(picture, now, self.names, (), wanted), wanted)

    def peerId(self, index: int) -> str:
        """The id of a peer."""
        (peer,) = (p for p in self.net["peers"] if p["node_info"]["moniker"] == f"node{index}")
        identity: str = peer["node_info"]["id"]
        return identity

    def disconnect(self, index: int) -> str:
        """The engine loses a peer. Gives the peer's id."""
        identity = self.peerId(index)
        self.net["peers"] = [p for p in self.net["peers"] if p["node_info"]["id"] != identity]
        self.net["n_peers"] = str(len(self.net["peers"]))
        self.state["peers"] = [
            each for each in self.state["peers"] if not each["node_address"].startswith(identity)
        ]
        return identity

    def silence(self, index: int) -> None:
        """A validator has not voted for the newest block."""
        address = next(
            each["address"]
            for each in recorded("genesis")["genesis"]["validators"]
            if each["name"] == f"node{index}"
        )
        for entry in self.commit["signed_header"]["commit"]["signatures"]:
            if entry["validator_address"] == address:
                entry.update(
                    block_id_flag=1,
                    validator_address="",
                    timestamp="0001-01-01T00:00:00Z",
                    signature=None,
                )

    def peerState(self, index: int) -> Any:
        """The engine's record of a peer's place in deciding."""
        (peer,) = (p for p in self.net["peers"] if p["node_info"]["moniker"] == f"node{index}")
        (state,) = (
            each["peer_state"]["round_state"]
            for each in self.state["peers"]
            if each["node_address"].startswith(peer["node_info"]["id"])
        )
        return state


class ValidatorTests(AdminCase):
    """
    Validators.
    """

    def test_validatorsAreListedInEngineOrder(self) -> None:
        """All four are validators and active, in the engine's order, each with its name."""
        records = self.records()
        self.assertEqual([each.name for each in records], ["node1", "node0", "node2", "node3"])
        self.assertEqual({each.nodeId for each in records}, set(self.keys))
        for each in records:
            self.assertIs(each.nodeType, NodeType.SEALER)
            self.assertIs(each.isActive, True)
            self.assertEqual(each.view, 0)
        # The engine that was asked is at 3, the others decide the 11th height.
        self.assertEqual([each.height for each in records], [10, 3, 10, 10])

    def test_recordsFollowGivenOrder(self) -> None:
        """They come in the order that is asked for, those that it leaves out last."""
        records = self.records(order=self.keys[:3])
        self.assertEqual([each.name for each in records], ["node0", "node1", "node2", "node3"])
        records = self.records(order=self.keys[3:])
        self.assertEqual([each.name for each in records], ["node3", "node1", "node0", "node2"])

    def test_viewIsEngineRound(self) -> None:
        """The view is the round that each is in."""
        self.peerState(2)["round"] = 7
        self.state["round_state"]["round"] = 5
        self.assertEqual(self.of(2).view, 7)
        self.assertEqual(self.of(0).view, 5)
        self.assertEqual(self.of(1).view, 0)

    def test_peerHeightIsBeforeItsRound(self) -> None:
        """A peer's newest block is the one before that which it decides."""
        self.peerState(2)["height"] = "8"
        self.assertEqual(self.of(2).height, 7)
        self.peerState(2)["height"] = "0"
        self.assertEqual(self.of(2).height, 0)

    def test_newPeerIsActiveWithoutState(self) -> None:
        """A peer that has only just connected is active, and nothing more is known."""
        self.disconnect(1)
        self.net["peers"] = recorded("net_info")["peers"]
        self.state["peers"].append({"node_address": "", "peer_state": None})
        record = self.of(1)
        self.assertEqual((record.isActive, record.height, record.view), (True, 0, 0))

    def test_silentValidatorIsInactive(self) -> None:
        """A validator that neither votes nor is connected is not active."""
        self.disconnect(3)
        self.silence(3)
        record = self.of(3)
        self.assertIs(record.isActive, False)
        self.assertIs(record.nodeType, NodeType.SEALER)
        self.assertEqual((record.name, record.height, record.view), ("node3", 0, 0))

    def test_connectedValidatorIsActive(self) -> None:
        """A validator that is connected is active, vote or not."""
        self.silence(3)
        self.assertIs(self.of(3, now=MUCH_LATER).isActive, True)

    def test_recentVoteMeansActive(self) -> None:
        """A vote shows that a validator runs, for a while."""
        self.disconnect(3)
        record = self.of(3)
        self.assertEqual((record.isActive, record.height), (True, 3))
        self.assertIs(self.of(3, now=MUCH_LATER).isActive, False)

    def test_noVotesBeforeFirstBlock(self) -> None:
        """Before the first block nobody has voted."""
        self.status["sync_info"]["latest_block_height"] = "0"
        self.engine.refuse("commit", "height must be greater than 0, but got 0")
        self.disconnect(3)
        self.assertIs(self.of(3).isActive, False)
        self.assertIs(self.of(2).isActive, True)

    def test_unknownRoundIsThatOfVote(self) -> None:
        """An unknown round of a validator is that of its vote."""
        self.disconnect(3)
        self.commit["signed_header"]["commit"]["round"] = 2
        self.assertEqual(self.of(3).view, 2)


class MatchTests(AdminCase):
    """
    Tests for the match of peers and validators.
    """

    def rename(self, index: int, name: str) -> str:
        """A peer calls itself otherwise. Gives its id."""
        for peer in self.net["peers"]:
            if peer["node_info"]["moniker"] == f"node{index}":
                peer["node_info"]["moniker"] = name
                identity: str = peer["node_info"]["id"]
                return identity
        raise AssertionError(index)

    def test_nonValidatorPeerIsObserver(self) -> None:
        """A peer that is no validator is an observer, after all validators."""
        self.validators["validators"] = self.validators["validators"][:3]
        self.validators["total"] = "3"
        identity = self.rename(3, "follower")
        *validators, observer = self.records()
        self.assertEqual({each.nodeId for each in validators}, set(self.keys[:3]))
        self.assertEqual(
            observer,
            NodeRecord(
                nodeId=bytes.fromhex(identity),
                name="follower",
                view=0,
                nodeType=NodeType.OBSERVER,
                height=10,
                isActive=True,
            ),
        )

    def test_formerValidatorIsObserver(self) -> None:
        """One of the first validators that is none any more is an observer."""
        self.validators["validators"] = self.validators["validators"][:3]
        self.validators["total"] = "3"
        *_, last = self.records()
        self.assertEqual((last.name, last.nodeType), ("node3", NodeType.OBSERVER))

    def test_engineMayBeObserver(self) -> None:
        """The engine that is asked may be an observer itself."""
        self.validators["validators"] = [
            each
            for each in self.validators["validators"]
            if each["address"] != self.status["validator_info"]["address"]
        ]
        self.validators["total"] = "3"
        *_, last = self.records()
        self.assertEqual(last.name, "node0")
        self.assertEqual(last.nodeId.hex(), self.status["node_info"]["id"])
        self.assertEqual((last.nodeType, last.height), (NodeType.OBSERVER, 3))

    def test_duplicateNamesMatchNoValidator(self) -> None:
        """Of two that have one name, none is taken for the validator of that name."""
        self.rename(2, "node1")
        self.assertEqual(len(self.records()), 6)

    def test_peerWithOwnNameIsNotEngine(self) -> None:
        """A peer that has the engine's own name is not the engine."""
        self.rename(2, "node0")
        self.assertEqual(self.of(0).height, 3)
        self.assertEqual(len([each for each in self.records() if each.name == "node0"]), 2)

    def test_malformedIdIsHarmless(self) -> None:
        """An id that is none does no harm."""
        self.net["peers"][0]["node_info"].update(id="not hexadecimal", moniker="strange")
        *_, last = self.records()
        self.assertEqual(last.nodeId, b"not hexadecimal")

    def test_emptyAndDuplicateNamesAreSkipped(self) -> None:
        """Names that are empty or given twice tell nothing."""
        genesis = EngineGenesis(
            genesisTime=START,
            chainId="c",
            validators=tuple(
                makeValidator(bytes([index]) * 32, 1, name)
                for index, name in enumerate(["a", "b", "a", ""])
            ),
        )
        self.assertEqual(namesOf(genesis), {"b": b"\x01" * 32})


class PictureTests(AdminCase):
    """
    L{takePicture} and L{nodeCount}.
    """

    def test_nodeCountIncludesEngine(self) -> None:
        """The engine counts itself and whom it is connected to."""
        self.assertEqual(nodeCount(self.picture().network), 4)
        self.disconnect(1)
        self.assertEqual(nodeCount(self.picture().network), 3)

    def test_votesBelongToFormerSet(self) -> None:
        """Votes are those of the old set where the set has just changed."""
        whole = recorded("validators")

        def answer(parameters: Any) -> Any:
            if "height" in parameters:
                return whole
            return whole | {"validators": whole["validators"][1:], "total": "3"}

        self.engine.answers["validators"] = answer
        self.commit["signed_header"]["header"]["next_validators_hash"] = "00" * 32
        self.disconnect(3)
        picture = self.picture()
        self.assertEqual((len(picture.voters), len(picture.validators)), (4, 3))
        self.assertIs(self.of(3).isActive, True)


class HealthTests(AdminCase):
    """
    L{healthOf}.
    """

    def test_threeOfFourIsReady(self) -> None:
        """Four of four, and three of four."""
        self.assertEqual(self.health(), Health(isReady=True))
        self.disconnect(1)
        self.assertIs(self.health(MUCH_LATER).isReady, True)

    def test_twoOfFourIsNotReady(self) -> None:
        """Two of four decide nothing."""
        self.disconnect(1)
        self.disconnect(2)
        health = self.health(MUCH_LATER)
        self.assertIs(health.isReady, False)
        self.assertIn("2 of 4 validators are active", health.reason)

    def test_lostPeersAreNoticedWithinThreeSeconds(self) -> None:
        """Recent votes of persistent peers that are not connected do not count for long."""
        wanted = {self.peerId(index) for index in (1, 2, 3)}
        self.disconnect(1)
        self.disconnect(2)
        self.assertIs(self.health(BLOCK_TIME + 1, wanted).isReady, True)
        health = self.health(BLOCK_TIME + 3, wanted)
        self.assertIs(health.isReady, False)
        self.assertIn("2 of 4 validators are active", health.reason)
        records = nodeRecords(self.picture(), BLOCK_TIME + 3, self.names, (), wanted)
        self.assertEqual({each.name for each in records if not each.isActive}, {"node1", "node2"})

    def test_engineBehindItsPeersIsNotReady(self) -> None:
        """Heights of a third of the validators count, a single one does not."""
        self.state["round_state"]["height"] = "4"
        for index in (1, 2, 3):
            self.peerState(index)["height"] = "4"
        self.assertIs(self.health().isReady, True)
        self.peerState(1)["height"] = "900"
        self.assertIs(self.health().isReady, True)
        self.peerState(2)["height"] = "800"
        health = self.health()
        self.assertIs(health.isReady, False)
        self.assertIn(
            "the engine is behind: it is at height 3, and its peers are at 799", health.reason
        )
        # Two blocks are no lag: the states are not read all at once.
        self.peerState(2)["height"] = "6"
        self.assertIs(self.health().isReady, True)

    def test_onlyPeerAheadMeansBehind(self) -> None:
        """An engine that is connected to one node believes its height."""
        self.state["round_state"]["height"] = "4"
        self.peerState(3)["height"] = "900"
        for index in (1, 2):
            self.disconnect(index)
        self.assertIn("behind", self.health(wanted={self.peerId(3)}).reason)

    def test_relayedValidatorsCountAsReachable(self) -> None:
        """An engine that keeps connections to two cannot tell after a while who else is there."""
        wanted = {self.peerId(3)}
        self.disconnect(1)
        self.disconnect(2)
        self.assertIs(self.health(MUCH_LATER, wanted).isReady, True)

    def test_lostPersistentPeersAreMissing(self) -> None:
        """Of those that it keeps connections to it knows."""
        wanted = {self.peerId(1), self.peerId(2), self.peerId(3)}
        self.disconnect(1)
        self.assertIs(self.health(MUCH_LATER, wanted).isReady, True)
        self.disconnect(2)
        self.assertIs(self.health(MUCH_LATER, wanted).isReady, False)

    def test_catchingUpIsNotReady(self) -> None:
        """An engine that is behind is not ready yet."""
        self.status["sync_info"]["catching_up"] = True
        health = self.health()
        self.assertIs(health.isReady, False)
        self.assertRegex(health.reason, "catching up: it is at height 3$")
        self.state["peers"][0]["peer_state"]["round_state"]["height"] = "90"
        self.assertRegex(self.health().reason, "catching up: it is at height 3 of 89$")

    def test_unknownPeersCountAsValidators(self) -> None:
        """Peers that may be validators under other names are not held to be missing."""
        for peer in self.net["peers"]:
            peer["node_info"]["moniker"] += "x"
        self.assertIs(self.health(MUCH_LATER).isReady, True)
