"""
The faults of a round. Each coroutine breaks something, waits, and mends it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Any, Final

from twisted.internet.defer import ensureDeferred, gatherResults
from twisted.internet.task import deferLater

from .chains import FINALITY, Chained, Reorganized
from .deployments import Copied, Deployment

LENGTH: Final = 6.0
"""The seconds that something is broken."""

Fault = Callable[[Any, Random], Coroutine[Any, Any, None]]


async def _rest(deployment: Deployment) -> None:
    await deferLater(deployment.reactor, LENGTH)


async def healthy(deployment: Deployment, random: Random) -> None:
    """Nothing is broken."""
    await _rest(deployment)


def _kills(count: int | None) -> Fault:
    async def kill(deployment: Deployment, random: Random) -> None:
        nodes = deployment.nodes if count is None else random.sample(deployment.nodes, count)
        await gatherResults([ensureDeferred(node.end()) for node in nodes])
        await deferLater(deployment.reactor, LENGTH if count else 0)
        for node in nodes:
            node.start()
        await _rest(deployment)

    return kill


async def stops(deployment: Deployment, random: Random) -> None:
    """A node is stopped in order, and started again."""
    node = random.choice(deployment.nodes)
    await node.end(signal.SIGTERM)
    await _rest(deployment)
    node.start()


async def suspendsBroker(deployment: Deployment, random: Random) -> None:
    """A broker stands still."""
    node = random.choice(deployment.nodes)
    node.signal(signal.SIGSTOP)
    await _rest(deployment)
    node.signal(signal.SIGCONT)


async def killsEngine(deployment: Deployment, random: Random) -> None:
    """An engine is killed; its broker starts it again."""
    random.choice(deployment.nodes).signalEngine(signal.SIGKILL)
    await _rest(deployment)


async def suspendsEngine(deployment: Deployment, random: Random) -> None:
    """An engine stands still."""
    node = random.choice(deployment.nodes)
    node.signalEngine(signal.SIGSTOP)
    await _rest(deployment)
    node.signalEngine(signal.SIGCONT)


def _wipes(withEngine: bool) -> Fault:
    async def wipe(deployment: Deployment, random: Random) -> None:
        node = random.choice(deployment.nodes)
        await node.end()
        await deferLater(deployment.reactor, 1.0)
        node.wipe(withEngine)
        node.start()
        await _rest(deployment)

    return wipe


def _cut(deployment: Deployment, *islands: set[int], oneWay: bool = False) -> None:
    """Cut islands off from each other; one way: the first one is still heard."""
    first, second = islands
    pairs = [(each, other) for each in second for other in first]
    if not oneWay:
        pairs += [(other, each) for each, other in pairs]
    deployment.links.sever(*pairs)


def _cuts(alone: int, oneWay: bool = False) -> Fault:
    async def cut(deployment: Deployment, random: Random) -> None:
        numbers = set(range(len(deployment.nodes)))
        island = set(random.sample(sorted(numbers), alone))
        _cut(deployment, island, numbers - island, oneWay=oneWay)
        await _rest(deployment)
        deployment.links.heal()

    return cut


async def bridges(deployment: Deployment, random: Random) -> None:
    """Two pairs of nodes have one node in common that reaches both."""
    left, right, *_ = random.sample(range(len(deployment.nodes)), len(deployment.nodes))
    deployment.links.sever((left, right), (right, left))
    await _rest(deployment)
    deployment.links.heal()


async def slows(deployment: Deployment, random: Random) -> None:
    """Everything between nodes takes a while."""
    deployment.links.delay = random.uniform(0.02, 0.2)
    await _rest(deployment)
    deployment.links.heal()


async def resets(deployment: Deployment, random: Random) -> None:
    """Connections between nodes end again and again."""
    for _ in range(int(LENGTH)):
        deployment.links.reset(random.randint(1, 6))
        await deferLater(deployment.reactor, 1.0)


async def fillsDisk(deployment: Deployment, random: Random) -> None:
    """No file of a broker grows."""
    node = random.choice(deployment.nodes)
    node.limitFiles(0)
    await _rest(deployment)
    node.limitFiles(None)


async def wipesCopy(deployment: Copied, random: Random) -> None:
    """A copy is killed, and begins anew."""
    node = deployment.nodes[1]
    await node.end()
    node.wipe(False)
    node.start()
    await _rest(deployment)


def _killsNodes(count: int, number: int = signal.SIGKILL) -> Fault:
    async def kill(deployment: Chained, random: Random) -> None:
        nodes = random.sample(deployment.chain, count)
        for node in nodes:
            node.signal(number)
        await _rest(deployment)
        for node in nodes:
            if number == signal.SIGKILL:
                await node.end()
                node.start()
            else:
                node.signal(signal.SIGCONT)
        await _rest(deployment)

    return kill


async def reorganizes(deployment: Reorganized, random: Random) -> None:
    """The last blocks of the chain are replaced, none of them final."""
    for _ in range(int(LENGTH / 2)):
        await deployment.reorganize(random.randint(1, FINALITY - 1))
        await deferLater(deployment.reactor, 2.0)


async def dropsTransactions(deployment: Reorganized, random: Random) -> None:
    """The node forgets what is in no block."""
    for _ in range(int(4 * LENGTH)):
        await deployment.dropAll()
        await deferLater(deployment.reactor, 0.25)


def _both(ofNodes: Sequence[Fault], ofLinks: Sequence[Fault]) -> Fault:
    async def both(deployment: Deployment, random: Random) -> None:
        faults = [random.choice(each) for each in (ofNodes, ofLinks)]
        await gatherResults([ensureDeferred(fault(deployment, random)) for fault in faults])

    return both


def _switches(*commands: tuple[str, ...]) -> Fault:
    async def switch(deployment: Copied, random: Random) -> None:
        for command in commands:
            await deployment.fault(*command)
        await _rest(deployment)
        await deployment.fault("heal")

    return switch


ENGINES: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "healthy": healthy,
        "one broker killed": _kills(1),
        "two brokers killed": _kills(2),
        "all brokers killed": _kills(None),
        "one node stopped": stops,
        "one broker suspended": suspendsBroker,
        "one engine killed": killsEngine,
        "one engine suspended": suspendsEngine,
        "one broker's data wiped": _wipes(False),
        "one node's data wiped": _wipes(True),
        "cut 3 | 1": _cuts(1),
        "cut 2 | 2": _cuts(2),
        "cut 3 | 1, one way": _cuts(1, oneWay=True),
        "two nodes do not reach each other": bridges,
        "links slow": slows,
        "links reset": resets,
        "one broker's disk full": fillsDisk,
        "a node and the links": _both(
            [_kills(1), _kills(2), suspendsBroker, killsEngine, suspendsEngine, _wipes(True)],
            [_cuts(1), _cuts(2), bridges, slows, resets],
        ),
    }
)
"""The faults of networks of engines."""

COPIES: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "healthy": healthy,
        "one broker killed": _kills(1),
        "both brokers killed": _kills(None),
        "one broker stopped": stops,
        "one broker suspended": suspendsBroker,
        "copy wiped": wipesCopy,
        "copy cut off": _cuts(1),
        "link slow": slows,
        "link reset": resets,
        "one broker's disk full": fillsDisk,
        "a node and the link": _both([_kills(1), suspendsBroker, wipesCopy], [_cuts(1), resets]),
        "one replica stopped": _switches(("stop", "1")),
        "replicas cut 2 | 2": _switches(("cut", "0,1", "2,3")),
        "replicas cut one way": _switches(("cut", "0:1")),
        "messages lost and doubled": _switches(("lose", "0.2"), ("duplicate", "0.2")),
        "messages slow": _switches(("slow", "0.01-0.1")),
    }
)
"""The faults of the embedded ledger with a copy."""

VALIDATORS: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "healthy": healthy,
        "one validator killed": _killsNodes(1),
        "two validators killed": _killsNodes(2),
        "one validator suspended": _killsNodes(1, signal.SIGSTOP),
        "cut 3 | 1": _cuts(1),
        "cut 2 | 2": _cuts(2),
        "one broker killed": _kills(1),
        "all brokers killed": _kills(None),
        "a broker and a validator": _both([_kills(1), suspendsBroker], [_killsNodes(1)]),
    }
)
"""The faults of validators of an EVM chain with brokers."""

REORGANIZED: Final[Mapping[str, Fault]] = MappingProxyType(
    {
        "healthy": healthy,
        "last blocks replaced": reorganizes,
        "transactions dropped": dropsTransactions,
        "one broker killed": _kills(1),
        "all brokers killed": _kills(None),
        "a broker, and blocks replaced": _both([_kills(1), suspendsBroker], [reorganizes]),
    }
)
"""The faults of brokers on one node of an EVM chain."""
