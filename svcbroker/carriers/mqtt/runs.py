"""
Publishes on their way into the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ...broker import Publication
from ...errors import BrokerError


class Run(Struct, eq=False):
    """
    Publishes of one read.

    @ivar qos: the QoS of those that are to be answered.
    @ivar packetIds: their packet identifiers.
    @ivar publications: those of them that are to be published.
    @ivar refused: the errors of the others, by their places in C{packetIds}.
    @ivar repeated: packet identifiers of further ones, which were sent before.
    @ivar last: QoS and packet identifier of a message at which the connection ends, and why, if
        there is one.
    @ivar needsDisk: whether idempotency keys must be on disk before they are submitted.
    @ivar size: the bytes of their payloads.
    @ivar answers: their outcomes, once they are known.
    """

    qos: list[int] = []
    packetIds: list[int] = []
    publications: list[Publication] = []
    refused: dict[int, BrokerError] = {}
    repeated: list[int] = []
    last: tuple[int, int, BrokerError] | None = None
    needsDisk: bool = False
    size: int = 0
    answers: Sequence[BrokerError | None] | None = None

    def settle(self, answers: Sequence[BrokerError | None]) -> None:
        """Set the outcomes, given those of the publications."""
        if self.refused:
            merged = list(answers)
            for number, error in self.refused.items():
                merged.insert(number, error)
            answers = merged
        self.answers = answers
