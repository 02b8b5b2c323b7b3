"""
Home directories of engines.
"""

from __future__ import annotations

import json
import tomllib
from base64 import b64decode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft._home import (
    CONFIG,
    KeyFileDamaged,
    LayoutError,
    decodeGenesis,
    readGenesis,
    readKeys,
    readPeers,
)
from svcbroker.ledgers.cometbft._networkwatch import DIALS, startCommand
from svcbroker.ledgers.cometbft.provisioning import (
    PROFILES,
    Address,
    NetworkPlan,
    NodePlan,
    Peer,
    StateSync,
    Tuning,
    layOutJoining,
    layOutNetwork,
    makeKeys,
)
from svcbroker.proofs.cometbft import Instant, validatorsHash
from tests.directories import shortDirectory

from .support import START, recorded


def counting() -> Callable[[int], bytes]:
    """Entropy that is other bytes each time, and the same in each test."""
    numbers = iter(range(10**6))
    return lambda size: sha256(b"%d" % next(numbers)).digest()[:size]


def planFor(root: Path, count: int = 4, **changes: Any) -> NetworkPlan:
    """A network on one machine."""
    nodes = [
        NodePlan(
            home=root / f"node{index}",
            name=f"node{index}",
            rpc=Address(host="127.0.0.1", port=26657 + 10 * index),
            p2p=Address(host="127.0.0.1", port=26656 + 10 * index),
        )
        for index in range(count)
    ]
    return evolve(NetworkPlan(chainId="chain-1", created=START, nodes=nodes), **changes)


class LayoutCase(SynchronousTestCase):
    """
    A test with a short path: that of a socket must not be long.
    """

    def setUp(self) -> None:
        self.root = shortDirectory(self) / "net"

    def json(self, path: str) -> Any:
        """One of the files."""
        return json.loads((self.root / path).read_bytes())

    def toml(self, path: str) -> Any:
        """One of the configurations."""
        return tomllib.loads((self.root / path).read_text("utf-8"))


class NetworkTests(LayoutCase):
    """
    L{layOutNetwork}.
    """

    def test_genesisNamesAllValidators(self) -> None:
        """All nodes have one genesis, in the form of the engine's own, naming all of them."""
        keys = layOutNetwork(planFor(self.root), counting())
        texts = {(self.root / f"node{i}/config/genesis.json").read_bytes() for i in range(4)}
        self.assertEqual(len(texts), 1)
        written = self.json("node0/config/genesis.json")
        model = recorded("genesis")["genesis"]
        self.assertEqual(set(written), set(model))
        self.assertEqual(written["consensus_params"].keys(), model["consensus_params"].keys())
        self.assertEqual(written["consensus_params"]["block"]["max_bytes"], str(8 * 2**20))
        for validator, other, each in zip(
            written["validators"], model["validators"], keys, strict=True
        ):
            self.assertEqual(validator.keys(), other.keys())
            self.assertEqual(b64decode(validator["pub_key"]["value"]), each.validator)
            self.assertEqual(validator["address"], sha256(each.validator).hexdigest()[:40].upper())
        self.assertEqual(written["genesis_time"], "2027-01-15T08:00:00Z")

    def test_recordedGenesisIsRead(self) -> None:
        """A genesis that is read has the values of the engine's own."""
        genesis = decodeGenesis(json.dumps(recorded("genesis")["genesis"]).encode())
        header = recorded("header_height_3")["header"]
        self.assertEqual(genesis.chainId, header["chain_id"])
        self.assertEqual(validatorsHash(genesis.members).hex().upper(), header["validators_hash"])
        self.assertEqual(genesis.validators[0].name, "node0")

    def test_nodesConnectToAllOthers(self) -> None:
        """Each node connects to all others, and finds its application in its home."""
        keys = layOutNetwork(planFor(self.root), counting())
        config = self.toml("node1/config/config.toml")
        self.assertEqual(config["moniker"], "node1")
        self.assertEqual(
            config["proxy_app"], f"unix://{(self.root / 'node1').absolute()}/abci.sock"
        )
        self.assertEqual(config["rpc"]["laddr"], "tcp://127.0.0.1:26667")
        self.assertEqual(config["p2p"]["laddr"], "tcp://127.0.0.1:26666")
        peers = [f"{keys[i].nodeId}@127.0.0.1:{26656 + 10 * i}" for i in (0, 2, 3)]
        self.assertEqual(config["p2p"]["persistent_peers"].split(","), peers)
        self.assertIs(config["p2p"]["allow_duplicate_ip"], True)
        self.assertIs(config["p2p"]["addr_book_strict"], False)
        self.assertIs(config["p2p"]["pex"], False)
        self.assertIs(config["mempool"]["recheck"], True)
        self.assertIs(config["consensus"]["create_empty_blocks"], False)
        self.assertEqual(config["consensus"]["timeout_commit"], "20ms")
        self.assertEqual(config["tx_index"]["indexer"], "null")
        self.assertIs(config["statesync"]["enable"], False)

    def test_persistentPeersAreRead(self) -> None:
        """Whom an engine keeps connections to is read from there, where it is said there."""
        keys = layOutNetwork(planFor(self.root), counting())
        home = self.root / "node1"
        self.assertEqual(
            readPeers(home),
            {keys[index].nodeId: ("127.0.0.1", 26656 + 10 * index) for index in (0, 2, 3)},
        )
        path = home / CONFIG
        for text in ("", "[p2p", "p2p = 1", "[p2p]\npersistent_peers = 1", path.read_text()[:-1]):
            path.write_text(text.replace("persistent_peers = ", "persistent_peers = 1 # "))
            self.assertIsNone(readPeers(home))
        path.write_text('[p2p]\npersistent_peers = ""')
        self.assertIsNone(readPeers(home))
        self.assertIsNone(readPeers(self.root))

    def test_peersAreDialledSeveralTimes(self) -> None:
        """The command that starts an engine has its peers more than once, by IPv6 in brackets."""
        keys = layOutNetwork(planFor(self.root), counting())
        home = self.root / "node1"
        path = home / CONFIG
        path.write_text(path.read_text().replace("127.0.0.1:26676", "[::1]:26676"))
        program, *words, option, peers = startCommand(Path("/bin/cometbft"), home)
        self.assertEqual(program, "/bin/cometbft")
        self.assertEqual(words, ["start", "--home", str(home)])
        self.assertEqual(option, "--p2p.persistent_peers")
        places = ("127.0.0.1:26656", "[::1]:26676", "127.0.0.1:26686")
        wanted = [f"{keys[i].nodeId}@{place}" for i, place in zip((0, 2, 3), places, strict=True)]
        self.assertEqual(peers.split(","), wanted * DIALS)
        path.write_text('[p2p]\npersistent_peers = ""')
        self.assertEqual(startCommand(Path("/bin/cometbft"), home)[1:], words)

    def test_profilesSetTimeouts(self) -> None:
        """An absent proposer costs 70 ms in a LAN and more in a WAN; further rounds wait longer."""
        for name, expected in (
            ("lan", ["60ms", "200ms", "10ms", "200ms", "10ms", "200ms", "20ms"]),
            ("wan", ["2000ms", "500ms", "500ms", "500ms", "500ms", "500ms", "20ms"]),
        ):
            root = self.root / name
            layOutNetwork(planFor(root, tuning=PROFILES[name]), counting())
            written = tomllib.loads((root / "node0/config/config.toml").read_text("utf-8"))
            steps = ["propose", "propose_delta", "prevote", "prevote_delta"]
            steps += ["precommit", "precommit_delta", "commit"]
            found = [written["consensus"][f"timeout_{step}"] for step in steps]
            self.assertEqual(found, expected)

    def test_tuningReachesConfig(self) -> None:
        """Settings arrive, and the engine's RPC accepts the largest transaction."""
        tuning = Tuning(commit=0.5, maxTransaction=3000000, transactions=17, emptyBlocks=True)
        layOutNetwork(planFor(self.root, tuning=tuning), counting())
        config = self.toml("node0/config/config.toml")
        self.assertEqual(config["consensus"]["timeout_commit"], "500ms")
        self.assertIs(config["consensus"]["create_empty_blocks"], True)
        self.assertEqual(config["mempool"]["max_tx_bytes"], 3000000)
        self.assertEqual(config["mempool"]["size"], 17)
        self.assertGreater(config["rpc"]["max_body_bytes"], 4000000)
        self.assertIs(config["p2p"]["allow_duplicate_ip"], True)
        self.assertIs(config["p2p"]["addr_book_strict"], False)

    def test_ipv6AddressesAreBracketed(self) -> None:
        """Addresses of IPv6 stand in brackets; peers use the external one."""
        node = NodePlan(
            home=self.root / "a",
            name="a",
            rpc=Address(host="::1", port=1),
            p2p=Address(host="::", port=2),
            external=Address(host="a.example", port=3),
        )
        other = NodePlan(
            home=self.root / "b",
            name="b",
            rpc=Path("/run/rpc.sock"),
            p2p=Address(host="::1", port=5),
            socket=Path("/run/b.sock"),
        )
        keys = layOutNetwork(planFor(self.root, nodes=[node, other]), counting())
        config = self.toml("a/config/config.toml")
        self.assertEqual(config["rpc"]["laddr"], "tcp://[::1]:1")
        self.assertEqual(config["p2p"]["external_address"], "a.example:3")
        self.assertEqual(config["p2p"]["persistent_peers"], f"{keys[1].nodeId}@[::1]:5")
        config = self.toml("b/config/config.toml")
        self.assertEqual(config["p2p"]["persistent_peers"], f"{keys[0].nodeId}@a.example:3")
        self.assertEqual(config["proxy_app"], "unix:///run/b.sock")
        self.assertEqual(config["rpc"]["laddr"], "unix:///run/rpc.sock")

    def test_keyFilesArePrivate(self) -> None:
        """Keys have the engine's form, and only their owner reads them."""
        (keys,) = layOutNetwork(planFor(self.root, 1), counting())
        node = self.json("node0/config/node_key.json")["priv_key"]
        self.assertEqual(node["type"], "tendermint/PrivKeyEd25519")
        public = b64decode(node["value"])[32:]
        self.assertEqual(keys.nodeId, sha256(public).digest()[:20].hex())
        validator = self.json("node0/config/priv_validator_key.json")
        self.assertEqual(set(validator), {"address", "pub_key", "priv_key"})
        self.assertEqual(b64decode(validator["pub_key"]["value"]), keys.validator)
        self.assertEqual(b64decode(validator["priv_key"]["value"])[32:], keys.validator)
        state = self.json("node0/data/priv_validator_state.json")
        self.assertEqual(state, {"height": "0", "round": 0, "step": 0})
        for name in ("node_key", "priv_validator_key"):
            path = self.root / f"node0/config/{name}.json"
            self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual((self.root / "node0").stat().st_mode & 0o777, 0o700)

    def test_keysDiffer(self) -> None:
        """No two keys are alike."""
        keys = layOutNetwork(planFor(self.root), counting())
        self.assertEqual(len({each.nodeId for each in keys}), 4)
        self.assertEqual(len({each.validator for each in keys}), 4)

    def test_homeTellsWhatItWasMadeWith(self) -> None:
        """A home says what it was made with."""
        keys = layOutNetwork(planFor(self.root), counting())
        genesis = readGenesis(self.root / "node2")
        self.assertEqual(readKeys(self.root / "node2"), keys[2])
        self.assertEqual(genesis.chainId, "chain-1")
        self.assertEqual(len(genesis.members), 4)

    def test_existingNetworkIsKept(self) -> None:
        """A network is not laid out over another one."""
        layOutNetwork(planFor(self.root), counting())
        with self.assertRaises(LayoutError) as raised:
            layOutNetwork(planFor(self.root), counting())
        self.assertIn("is the home of an engine already", str(raised.exception))

    def test_interruptedLayoutContinues(self) -> None:
        """A layout that was begun goes on with the keys, and with what was signed."""
        keys = makeKeys(self.root / "node0", counting())
        state = self.root / "node0/data/priv_validator_state.json"
        state.write_text('{"height": "7", "round": 0, "step": 3}')
        laidOut = layOutNetwork(planFor(self.root), lambda size: sha256(b"x").digest())
        self.assertEqual(laidOut[0], keys)
        self.assertIn("7", state.read_text())

    def test_invalidPlanWritesNothing(self) -> None:
        """A plan that no engine would run on is refused before anything is written."""
        deep = NodePlan(
            home=self.root / ("x" * 100),
            name="deep",
            rpc=Address(host="127.0.0.1", port=1),
            p2p=Address(host="127.0.0.1", port=2),
        )
        far = evolve(deep, home=self.root / "x", rpc=self.root / ("x" * 100))
        named = NodePlan(
            home=self.root / "x", name="\u00e9\n", rpc=deep.rpc, p2p=deep.p2p, socket="kvstore"
        )
        for words, plan in (
            ("1 to 50", planFor(self.root, chainId="x" * 51)),
            ("1 to 50", planFor(self.root, chainId="a b")),
            ("one node", planFor(self.root, nodes=[])),
            ("a block has", planFor(self.root, blockBytes=0)),
            ("a block has", planFor(self.root, blockBytes=2**40)),
            ("longer than 107 bytes", planFor(self.root, nodes=[deep])),
            ("longer than 107 bytes", planFor(self.root, nodes=[far])),
            ("a node has a name", planFor(self.root, nodes=[named])),
        ):
            error = self.assertRaises(LayoutError, layOutNetwork, plan, counting())
            self.assertIn(words, str(error))
        self.assertFalse(self.root.exists())

    def test_unwritablePathIsNamed(self) -> None:
        """The operator is told where nothing can be written."""
        self.root.write_text("a file")
        error = self.assertRaises(LayoutError, layOutNetwork, planFor(self.root), counting())
        self.assertIn("cannot write", str(error))
        self.assertIn(str(self.root), str(error))


class JoiningTests(LayoutCase):
    """
    L{layOutJoining}.
    """

    PEER = Peer(nodeId="ab" * 20, address=Address(host="127.0.0.1", port=26656))

    def setUp(self) -> None:
        super().setUp()
        layOutNetwork(planFor(self.root, 1), counting())
        self.genesis = (self.root / "node0/config/genesis.json").read_bytes()
        self.node = NodePlan(
            home=self.root / "new",
            name="new",
            rpc=Address(host="127.0.0.1", port=1),
            p2p=Address(host="127.0.0.1", port=2),
        )

    def test_joiningHomeSharesGenesis(self) -> None:
        """It has the network's genesis, peers, and keys of its own."""
        keys = layOutJoining(self.node, self.genesis, [self.PEER], counting())
        self.assertEqual((self.root / "new/config/genesis.json").read_bytes(), self.genesis)
        self.assertEqual(readKeys(self.node.home), keys)
        config = self.toml("new/config/config.toml")
        self.assertEqual(config["p2p"]["persistent_peers"], f"{'ab' * 20}@127.0.0.1:26656")
        self.assertIs(config["statesync"]["enable"], False)

    def test_stateSyncIsConfigured(self) -> None:
        """It begins with a snapshot, which the headers of two servers verify."""
        servers = [Address(host="127.0.0.1", port=26657), Address(host="::1", port=26667)]
        sync = StateSync(servers=servers, height=12, hash=bytes(32))
        layOutJoining(self.node, self.genesis, [self.PEER], counting(), stateSync=sync)
        written = self.toml("new/config/config.toml")["statesync"]
        self.assertIs(written["enable"], True)
        self.assertEqual(written["rpc_servers"], "127.0.0.1:26657,[::1]:26667")
        self.assertEqual(written["trust_height"], 12)
        self.assertEqual(written["trust_hash"], "00" * 32)
        self.assertEqual(written["trust_period"], "315360000s")

    def test_invalidPlanWritesNothing(self) -> None:
        """A plan that cannot be is refused before there are keys."""
        sync = StateSync(servers=[Address(host="a", port=1)], height=1, hash=bytes(32))
        for words, genesis, stateSync in (
            ("two engines", self.genesis, sync),
            ("not the genesis", b"{}", None),
            ("not the genesis", b"\xff", None),
        ):
            error = self.assertRaises(
                LayoutError,
                layOutJoining,
                self.node,
                genesis,
                [self.PEER],
                counting(),
                stateSync=stateSync,
            )
            self.assertIn(words, str(error))
        self.assertFalse(self.node.home.exists())


class ReadingTests(LayoutCase):
    """
    Homes that somebody has damaged.
    """

    def setUp(self) -> None:
        super().setUp()
        layOutNetwork(planFor(self.root, 1), counting())
        self.home = self.root / "node0"

    def test_missingGenesisIsRefused(self) -> None:
        """A directory without a genesis is no home."""
        with self.assertRaises(LayoutError):
            readGenesis(self.root)

    def test_malformedGenesisIsRefused(self) -> None:
        """A genesis that is none is said to be none."""
        (self.home / "config/genesis.json").write_text("{}")
        with self.assertRaises(LayoutError):
            readGenesis(self.home)

    def test_damagedKeysAreRefused(self) -> None:
        """Keys that are missing, or are no keys, or do not fit together are not used."""
        path = self.home / "config/node_key.json"
        good = path.read_text()
        value = json.loads(good)["priv_key"]["value"]
        for text in (
            "",
            "{}",
            good.replace("PrivKeyEd25519", "PrivKeySecp256k1"),
            good.replace(value, value[:40]),
            good.replace(value[:4], "AAAA" if value[:4] != "AAAA" else "BBBB"),
        ):
            path.write_text(text)
            with self.assertRaises(KeyFileDamaged):
                readKeys(self.home)
        path.unlink()
        with self.assertRaises(KeyFileDamaged):
            readKeys(self.home)

    def test_genesisTimeRoundTrips(self) -> None:
        """The genesis' time goes through the file."""
        self.assertEqual(readGenesis(self.home).genesisTime, Instant(START))
