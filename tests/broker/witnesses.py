"""
Witnesses in memory, in the place of those on the network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from svcbroker.proofs.tlog import (
    AddCheckpoint,
    CheckpointRefused,
    Policy,
    TreeHead,
    VerifierKey,
    WitnessKey,
    checkCheckpoint,
)

NAMES = ("a", "b", "c")
KEYS = {name: WitnessKey(f"{name}.example/w", name.encode() * 32) for name in NAMES[:2]}
KEYS["c"] = WitnessKey("c.example/w/executed", b"c" * 32)
"""The last one executes."""


def policyOf(quorum: str = "two", log: VerifierKey | None = None) -> Policy:
    """A policy of three witnesses."""
    lines = [f"log {log.text}"] if log is not None else []
    lines += [
        f"witness {name} {key.verifier.text} https://{name}.example" for name, key in KEYS.items()
    ]
    lines += ["group two 2 a b c", f"quorum {quorum}", ""]
    return Policy.parse("\n".join(lines).encode())


class FakeWitness:
    """
    A witness in memory.

    @ivar latest: what it has cosigned last.
    @ivar asked: the requests, as (older, newer).
    @ivar answer: answers in its place, where a test says so.
    """

    def __init__(self, key: WitnessKey, seconds: Callable[[], float]) -> None:
        self.key = key
        self.latest: TreeHead | None = None
        self.asked: list[tuple[int, int]] = []
        self.answer: Callable[[AddCheckpoint], Deferred[tuple[int, bytes]]] | None = None
        self.origins: dict[str, Any] = {}
        self._seconds = seconds

    def cosign(self, request: AddCheckpoint) -> tuple[int, bytes]:
        """Answer as a witness does that knows every log."""
        note = request.checkpoint
        head = TreeHead.parse(note.text)
        try:
            keys = self.origins.setdefault(head.origin, [])
            self.latest, _ = checkCheckpoint(request, {head.origin: keys}, self.latest)
        except CheckpointRefused as error:
            return error.status, f"{error.size if error.size is not None else error}\n".encode()
        return 200, self.key.cosign(note.text, int(self._seconds())).line.encode()


class FakeWitnesses:
    """
    Stands in the place of the network.

    @ivar all: the witnesses by their URLs.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.all = {f"https://{name}.example": FakeWitness(KEYS[name], seconds) for name in NAMES}

    def __getitem__(self, name: str) -> FakeWitness:
        return self.all[f"https://{name}.example"]

    def trust(self, key: VerifierKey) -> None:
        """Have all know the key of a log."""
        for each in self.all.values():
            each.origins.setdefault(key.name, []).append(key)

    def addCheckpoint(self, url: str, body: bytes) -> Deferred[tuple[int, bytes]]:
        """See L{IWitnessClient<svcbroker.broker.transparency._cosigning.IWitnessClient>}."""
        witness, request = self.all[url], AddCheckpoint.decode(body)
        newer = TreeHead.parse(request.checkpoint.text).size
        witness.asked.append((request.older, newer))
        if witness.answer is not None:
            return witness.answer(request)
        return succeed(witness.cosign(request))
