"""
The clients of a round: writers, readers and followers at all nodes.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import aclosing
from random import Random
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater

from svcbroker.client import Event
from svcbroker.client.twisted import TwistedClient
from svcbroker.errors import (
    EventNotFound,
    HeightUnknown,
    IdempotencyConflict,
    NodeBehind,
    SequenceConflict,
    TopicNotFound,
)

from .deployments import Deployment, Node
from .history import Logged, Operation, Result, Round

WRITERS: Final = 6
READERS: Final = 2
TOPICS: Final = 4
TIMEOUT: Final = 8.0
"""The seconds that a writer waits for an answer."""
PAUSE: Final = 0.02
"""Between two calls of a client, in seconds."""
ATTEMPTS: Final = 4
FOLLOW_TIMEOUT: Final = 300.0
END: Final = "end"

_BEHIND: Final = frozenset({HeightUnknown.rpcCode, NodeBehind.rpcCode})
_CONFLICT: Final = SequenceConflict.rpcCode


class Traffic:
    """
    All clients of a round.
    """

    def __init__(self, deployment: Deployment, round: Round, random: Random) -> None:
        self._deployment = deployment
        self._round = round
        self._random = random
        self._prefix = f"r{random.getrandbits(40):x}"
        self._topics = [f"{self._prefix}/{number}" for number in range(TOPICS)]
        self._newest: dict[str, str] = {}
        self._isOver = False
        self._running: list[Deferred[Any]] = []
        self._followers: list[Deferred[None]] = []
        self._serial = 0

    async def start(self) -> None:
        """Open the topics, and start all clients."""
        for topic in self._topics:
            await self._open(topic)
        await self._open(self._ending)
        works = [self._write(number) for number in range(WRITERS)]
        works += [self._read() for _ in range(READERS)]
        self._running = [Deferred.fromCoroutine(work) for work in works]
        urls = [node.url for node in self._deployment.nodes]
        for number in range(len(urls)):
            order = [*urls[number:], *urls[:number]]
            self._followers.append(self._begin(f"of {order[0]}", self._follow(order)))
            self._followers.append(self._begin(f"that moves {number}", self._move(number)))

    @property
    def _ending(self) -> str:
        return f"{self._prefix}/{END}"

    def _begin(self, name: str, following: Any) -> Deferred[None]:
        def got(ids: list[str]) -> None:
            self._round.followed[name] = ids

        def failed(failure: Any) -> None:
            self._round.broken.append(f"follower {name}: {failure.value!r}")

        return Deferred.fromCoroutine(following).addCallbacks(got, failed)

    async def _open(self, topic: str) -> None:
        while True:
            operation = self._operation(0, topic, "open")
            await self._call(operation, self._deployment.writers[0])
            if operation.result is Result.DONE:
                return

    async def stop(self) -> None:
        """End all clients; the deployment must be level."""
        self._isOver = True
        await gatherResults(self._running)
        client = self._client(self._deployment.writers)
        await client.publish(self._ending, END)
        await client.disconnect()
        for node in self._deployment.nodes:
            self._round.logs[node.name] = await self._log(node)  # type: ignore[index]
        await gatherResults(self._followers)

    def _client(self, nodes: Sequence[Node]) -> TwistedClient:
        urls = [node.url for node in nodes]
        return TwistedClient(self._deployment.reactor, *urls, timeout=FOLLOW_TIMEOUT)

    async def _log(self, node: Node) -> list[Logged]:
        """The round's events as a node has them, up to the last one."""
        client = self._client([node])
        found: list[Logged] = []
        while not found or found[-1].topic != self._ending:
            found = []
            async for event in client.events(f"{self._prefix}/#", after="OFFSET_FIRST"):
                found.append(Logged(event.eventId, event.topic, event.content.decode()))
        await client.disconnect()
        return found

    async def _follow(self, urls: Sequence[str]) -> list[str]:
        """The ids that one who stays gets; its client goes to other brokers by itself."""
        client = TwistedClient(self._deployment.reactor, *urls, timeout=FOLLOW_TIMEOUT)
        ids = await self._take(client, "OFFSET_FIRST", None)
        await client.disconnect()
        return [event.eventId for event in ids]

    async def _move(self, seed: int) -> list[str]:
        """The ids that one gets who goes to another node after some events."""
        random = Random(seed)
        ids: list[str] = []
        while True:
            first, *others = random.sample(self._deployment.nodes, len(self._deployment.nodes))
            client = self._client([first, *others])
            events = await self._take(
                client, ids[-1] if ids else "OFFSET_FIRST", random.randint(1, 40)
            )
            await client.disconnect()
            self._round.counts["resumes"] += 1
            ids += [event.eventId for event in events]
            if events and events[-1].topic == self._ending:
                return ids

    async def _take(self, client: TwistedClient, after: str, most: int | None) -> list[Event]:
        events: list[Event] = []
        following = client.follow(f"{self._prefix}/#", after=after, timeout=FOLLOW_TIMEOUT)
        async with aclosing(following):
            async for event in following:
                events.append(event)
                if len(events) == most or event.topic == self._ending:
                    break
        return events

    def _operation(self, client: int, topic: str, kind: str, **fields: Any) -> Operation:
        operation = Operation(
            client=client, topic=topic, kind=kind, call=time.monotonic_ns(), **fields
        )
        self._round.writes.append(operation)
        return operation

    async def _write(self, client: int) -> None:
        """Open, close and publish until the round is over."""
        sequences: dict[str, int] = {}
        while not self._isOver:
            topic = self._random.choice(self._topics)
            dice = self._random.random()
            if dice < 0.03:
                await self._attempt(self._operation(client, topic, "close"))
            elif dice < 0.1:
                await self._attempt(self._operation(client, topic, "open"))
            elif dice < 0.16:
                await self._publishTwice(client, topic)
            else:
                await self._publish(client, topic, sequences, dice)
            await deferLater(self._deployment.reactor, PAUSE)

    def _content(self) -> str:
        self._serial += 1
        return f"{self._prefix}-{self._serial}"

    async def _publish(
        self, client: int, topic: str, sequences: dict[str, int], dice: float
    ) -> None:
        """Publish: a third each with a key, with an expected number, and with neither."""
        content = self._content()
        key = content if dice < 0.44 else ""
        expected = sequences.get(topic) if dice > 0.72 else None
        operation = self._operation(
            client, topic, "publish", content=content, key=key, expected=expected
        )
        await self._attempt(operation)
        if operation.sequence:
            sequences[topic] = operation.sequence

    async def _publishTwice(self, client: int, topic: str) -> None:
        """Publish with one key from two places at once."""
        content = self._content()
        twins = [
            self._operation(client, topic, "publish", content=content, key=content)
            for _ in range(2)
        ]
        await gatherResults([Deferred.fromCoroutine(self._attempt(each)) for each in twins])

    async def _attempt(self, operation: Operation) -> None:
        """Call any node; with a key, others as well while the outcome is not known."""
        for _ in range(ATTEMPTS if operation.key else 1):
            await self._call(operation, self._random.choice(self._deployment.writers))
            if operation.result is not Result.UNKNOWN:
                break
            await deferLater(self._deployment.reactor, 10 * PAUSE)
        self._round.counts[f"{operation.kind} {operation.result.value}"] += 1

    async def _call(self, operation: Operation, node: Node) -> None:
        parameters: dict[str, Any] = {"topic": operation.topic}
        if operation.kind == "publish":
            parameters["content"] = b64encode(operation.content.encode()).decode()
            if operation.key:
                parameters["idempotencyKey"] = operation.key
            if operation.expected is not None:
                parameters["expectedSequence"] = operation.expected
        try:
            answer = await self._deployment.ask(node, operation.kind, TIMEOUT, **parameters)
        except Exception:
            # Whatever it was, nobody has told what became of the write.
            return
        self._answered(operation, answer)

    def _answered(self, operation: Operation, answer: Any) -> None:
        """Take an answer."""
        error, result = answer.get("error"), answer.get("result")
        if error is not None:
            code = error["code"]
            if code == TopicNotFound.rpcCode:
                operation.result = Result.ABSENT
            elif code == _CONFLICT:
                operation.result = Result.CONFLICT
                operation.sequence = int(error["data"]["message"].rpartition(" ")[2])
            elif code == IdempotencyConflict.rpcCode:
                self._round.broken.append(f"{operation.content}: {error}")
            else:
                self._round.counts[f"error {code}"] += 1
                return
        elif operation.kind == "publish":
            if result["status"] == "TIMEOUT":
                return
            if result["status"] == "ERROR":
                # Closed while the publish was under way.
                operation.result = Result.ABSENT
            else:
                operation.result = Result.DONE
                operation.eventId = self._newest[operation.topic] = result["eventId"]
                operation.sequence = int(operation.eventId.split("-")[1])
        else:
            operation.result = Result.DONE
        operation.end = time.monotonic_ns()

    async def _read(self) -> None:
        """Ask any node for what another one has acknowledged."""
        while not self._isOver:
            await deferLater(self._deployment.reactor, PAUSE)
            known = dict(self._newest)
            if not known:
                continue
            topic, eventId = self._random.choice([*known.items()])
            node = self._random.choice(self._deployment.nodes)
            method = self._random.choice(["getEvent", "state"])
            parameters = {"eventId": eventId}
            if method == "state":
                parameters = {"topic": topic, "after": eventId}
            try:
                answer = await self._deployment.ask(node, method, 2 * TIMEOUT, **parameters)
            except Exception:
                self._round.counts["reads failed"] += 1
                continue
            self._look(method, eventId, answer)

    def _look(self, method: str, eventId: str, answer: Any) -> None:
        """Judge an answer: it tells of the event that was named, or that the node is behind."""
        error, result = answer.get("error"), answer.get("result")
        if error is None:
            self._round.counts["reads"] += 1
            if method == "state" and result["sequenceNumber"] < int(eventId.split("-")[1]):
                self._round.broken.append(f"state after {eventId}: {result['sequenceNumber']}")
        elif error["code"] in _BEHIND:
            self._round.counts["reads: node behind"] += 1
        elif error["code"] == EventNotFound.rpcCode:
            self._round.broken.append(f"{method} {eventId}: {error['message']}")
        elif error["code"] == TopicNotFound.rpcCode:
            # Closed, which the log says somewhere after the event.
            self._round.counts["reads of closed topics"] += 1
        else:
            self._round.counts["reads failed"] += 1
