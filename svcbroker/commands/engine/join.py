"""
C{svcbroker engine join}: the home of a new node of an existing network.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.task import react
from twisted.python import usage
from twisted.python.failure import Failure

from ...ledgers.cometbft.provisioning import (
    GENESIS,
    Address,
    Genesis,
    StateSync,
    TrustMissing,
    askTrust,
    connectEngine,
    layOutJoining,
)
from .._command import CommandError, Console, Exit
from ._files import JOIN_REQUEST_NAME, loadGenesis, loadJoinRequest, tried
from .genesis import ListenOptions
from .init import NodeOptions, address, describeJoinRequest, writeJoinRequest

_TRUST = re.compile(r"([1-9][0-9]{0,18}):([0-9a-fA-F]{64})")
_ANSWER = 10.0
_ALL = 60.0


class Options(NodeOptions, ListenOptions):
    """
    The options of C{svcbroker engine join}.
    """

    synopsis = "--genesis FILE --name NAME --p2p HOST:PORT --data-dir DIR [options] HOME REQUEST..."
    longdesc = (
        "REQUESTs are the join requests of nodes that the new one connects to. It follows the "
        "network, and votes once it has been made a validator (svcbroker engine propose). Its "
        "broker may send once a validator has attested it (svcbroker engine attest)."
    )
    optParameters: list[list[Any]] = [
        ["genesis", None, None, "The network's genesis file, as the others have it."],
        [
            "trust",
            None,
            None,
            "A trusted block, HEIGHT:HASH. [default: the first block, which the genesis proves]",
        ],
    ]
    needed = ("genesis", *NodeOptions.needed)

    def __init__(self) -> None:
        super().__init__()
        self["state-sync"] = []

    def opt_state_sync(self, text: str) -> None:
        """
        Start from a snapshot, verified by the RPC of this engine, HOST:PORT; give it at least
        twice.
        """
        self["state-sync"].append(address(text, "state-sync"))

    def parseArgs(self, home: str, *requests: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["home"] = Path(home).absolute()
        self["requests"] = [Path(request) for request in requests]

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        super().postOptions()
        if not self["requests"]:
            raise usage.UsageError("the join request of at least one node to connect to is needed")
        if len(self["state-sync"]) == 1:
            raise usage.UsageError("--state-sync: two engines must agree: give another one")
        if self["trust"] is not None:
            found = _TRUST.fullmatch(self["trust"])
            if found is None:
                raise usage.UsageError("--trust: is not HEIGHT:HASH with 64 hexadecimal digits")
            self["trust"] = (int(found[1]), bytes.fromhex(found[2]))


def run(options: Options, console: Console) -> int:
    """Lay out the home."""
    home: Path = options["home"]
    if (home / GENESIS).exists():
        raise CommandError(f"{home} is the home of an engine already")
    data, genesis = loadGenesis(Path(options["genesis"]))
    requests = [loadJoinRequest(path) for path in options["requests"]]
    for request in requests:
        if request.chain != genesis.chainId:
            raise CommandError(
                f"the join request of {request.name} is for {request.chain}, not {genesis.chainId}"
            )
    sync = _stateSync(options, genesis)
    timeouts = {request.timeouts for request in requests}
    if len(timeouts) > 1:
        raise CommandError(f"the join requests have several timeouts: {', '.join(timeouts)}")
    own = writeJoinRequest(options, genesis.chainId, timeouts.pop())
    peers = [request.peer for request in requests]
    plan = options.plan(home, own.name, own.peer.address)
    tried(lambda: layOutJoining(plan, data, peers, os.urandom, stateSync=sync, tuning=own.tuning))
    for line in describeJoinRequest(own):
        console.say(line)
    if sync is not None:
        console.say(f"trusts     block {sync.height}, {sync.hash.hex()}")
    console.say(f"Send {home / JOIN_REQUEST_NAME} to a validator, which attests the broker.")
    return Exit.GOOD


def _stateSync(options: Options, genesis: Genesis) -> StateSync | None:
    servers = options["state-sync"]
    if not servers:
        return None
    height, hash = options["trust"] or _ask(genesis, servers)
    return StateSync(servers=servers, height=height, hash=hash)


def _ask(genesis: Genesis, servers: Sequence[Address]) -> tuple[int, bytes]:
    """What the genesis proves of a network that runs."""
    answers: list[tuple[int, bytes]] = []
    failures: list[Failure] = []

    async def ask(reactor: Any) -> None:
        trust = await askTrust(
            genesis, [connectEngine(reactor, f"http://{each}", _ANSWER) for each in servers]
        )
        answers.append((trust.height, trust.hash))

    def main(reactor: Any) -> Deferred[Any]:
        asking = Deferred.fromCoroutine(ask(reactor))
        asking.addTimeout(_ALL, reactor, lambda result, seconds: Failure(TimeoutError()))
        return asking.addErrback(failures.append)

    # It always ends so; what came of it is known by then.
    with suppress(SystemExit):
        react(main)
    for failure in failures[:1]:
        if failure.check(TrustMissing):
            raise CommandError(f"--state-sync: {failure.getErrorMessage()}", Exit.BAD)
        if failure.check(TimeoutError):
            raise CommandError("--state-sync: the engines do not answer")
        failure.raiseException()
    if not answers:
        raise KeyboardInterrupt
    return answers[0]
