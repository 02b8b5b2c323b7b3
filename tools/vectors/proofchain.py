"""
The chain that the test vectors of proofs are of, and changes of its proofs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from svcbroker.chain import Header
from svcbroker.model import EventId
from svcbroker.proofs import HeaderFields, PbftCertificate
from tools.vectors.signedchain import SignedChain, seedOf

Json = dict[str, Any]

FIRST = ("node 0", "node 1", "node 2", "node 3")
SECOND = ("node 0", "second 1", "node 2", "node 3")
THIRD = ("node 0", "second 1", "node 2", "node 3", "third 4", "third 5", "third 6")


class Example:
    """
    The chain of the vectors, and a fork of it.
    """

    def __init__(self, directory: Path, *, word: str = "first", name: str = "node") -> None:
        directory.mkdir()
        self.chain = chain = SignedChain(directory, name=name)
        chain.open("weather/zurich", "b")
        (self.first,) = chain.publish("weather/zurich", word.encode())
        self.five = chain.publish("b", *[b"%d" % number for number in range(5)])
        chain.changeNodes(*SECOND)
        (self.binary,) = chain.publish("weather/zurich", b"\xff\x00\xfe\xff")
        extensions = {"svc-\uffff": "after", "svc-\U0001f600": "last", "svc-a": ""}
        (self.text,) = chain.publish("weather/zurich", "21,5\xb0".encode(), extensions=extensions)
        chain.changeNodes(*THIRD)
        (self.empty,) = chain.publish("b", b"")
        for _ in range(5):
            chain.decide()
        self.tip = chain.head.height

    def proof(self, eventId: EventId, checkpoint: int | None = None) -> Json:
        """An event proof as it is written."""
        proof: Json = to_builtins(self.chain.prover.event(eventId, checkpoint))
        return proof

    def kept(self, eventId: EventId, height: int) -> Json:
        """An event proof without certificates that leads to a checkpoint, as it is written."""
        proof: Json = to_builtins(self.chain.prover.event(eventId, trusted=height))
        return proof

    def topic(self, name: str) -> Json:
        """A topic proof as it is written."""
        prover = self.chain.prover
        proof: Json = to_builtins(prover.certified(prover.topic(name, self.chain.state)))
        return proof

    def growth(self, older: int, newer: int) -> Json:
        """A consistency proof as it is written."""
        proof: Json = to_builtins(self.chain.prover.consistency(older, newer))
        return proof

    def checkpoint(self, height: int) -> str:
        """A checkpoint as it is written."""
        return str(self.chain.prover.checkpoint(height))

    def final(self, header: Header, names: Sequence[str], signers: Sequence[int]) -> Json:
        """Any header with true signatures of nodes of any set."""
        self.chain._seeds = [seedOf(name) for name in names]
        certificate = self.chain.certify(header, signers)
        return {
            "header": to_builtins(HeaderFields.of(header)),
            "certificate": to_builtins(PbftCertificate.of(certificate)),
        }


def changed(document: Json, *path: str | int, to: Any) -> Json:
    """A copy with another value at a place; what is C{None} is taken out."""
    copy: Json = json.loads(json.dumps(document))
    place: Any = copy
    for key in path[:-1]:
        place = place[key]
    if to is None:
        del place[path[-1]]
    else:
        place[path[-1]] = to
    return copy


def uncertified(proof: Json) -> Json:
    """An event proof with a checkpoint, without the certificate of the event's block."""
    block = {"header": proof["block"]["header"]}
    return {**proof, "format": "svcbroker/event-proof/2", "block": block}
