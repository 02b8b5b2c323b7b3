"""
The calls about the transparency log of a group and its witnesses.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct, convert

from ..broker.transparency import WitnessesAnswer
from ._declarations import Operation, Result
from ._parameters import GROUP


class Witness(Struct, frozen=True):
    """
    A witness of a transparency log. Times are in milliseconds since the epoch; a size or a time of
    0 stands for none.
    """

    name: str
    key: str
    url: str
    size: int
    time: int
    isRefusing: bool
    refusals: int
    lastError: str


class Witnesses(Struct, frozen=True):
    """
    The transparency log of a group and its witnesses: the size of the log now, and of the newest
    checkpoint that the quorum of the policy has cosigned. Without a policy the quorum is empty.
    """

    group: str
    size: int
    cosigned: int
    quorum: str
    witnesses: list[Witness]


def _witnesses(answer: WitnessesAnswer) -> Witnesses:
    return convert(answer, Witnesses, from_attributes=True)


LOG_OPERATIONS: Final = (
    Operation(
        name="witnesses",
        summary="List the witnesses of the transparency log, and what they have cosigned of it.",
        parameters=(GROUP,),
        result=Result(type=Witnesses, render=_witnesses),
        method=lambda broker: broker.transparency.witnesses,
    ),
)
"""Those that are served as all calls are."""
