"""
The operations that prove something.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from .. import broker
from ..errors import (
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    ParameterInvalid,
)
from ..proofs import ConsistencyProof, EventProof, GenesisFields
from ._declarations import Operation
from ._operations import EVENT_ID, GROUP
from ._parameters import NumberKind, Parameter
from ._results import Result, same

_HEIGHT_KIND = NumberKind(ParameterInvalid, 0)


class Checkpoint(Struct, frozen=True):
    """
    A block to keep. Hashes are lower-case hexadecimal digits, the time is in milliseconds since
    the epoch, and checkpoint is HEIGHT:HASH, which is all that one needs to keep.
    """

    group: str
    chain: str
    height: int
    hash: str
    timestamp: int
    checkpoint: str


def _checkpoint(answer: broker.CheckpointAnswer) -> Checkpoint:
    return Checkpoint(
        answer.group,
        answer.chain,
        answer.checkpoint.height,
        answer.checkpoint.hash.hex(),
        answer.timestamp,
        str(answer.checkpoint),
    )


def _height(name: str, description: str, **how: Any) -> Parameter:
    return Parameter(name=name, kind=_HEIGHT_KIND, description=description, **how)


PROVING: Final = (
    Operation(
        name="proof",
        summary="Prove an event to somebody who does not trust the broker.",
        parameters=(
            EVENT_ID,
            GROUP,
            _height(
                "checkpoint",
                "The height of a later block that is to vouch for the event too.",
                default=None,
            ),
        ),
        result=Result(type=EventProof, render=same),
        errors=(EventIdBlank, EventIdTooLong, EventIdInvalid, EventNotFound, HeightUnknown),
        method=lambda broker: broker.proving.prove,
    ),
    Operation(
        name="checkpoint",
        summary="Tell a block's hash, to be kept where the broker cannot change it.",
        parameters=(
            GROUP,
            _height("height", "The block's height; absent means the latest one.", default=None),
        ),
        result=Result(type=Checkpoint, render=_checkpoint),
        errors=(HeightUnknown,),
        method=lambda broker: broker.proving.getCheckpoint,
    ),
    Operation(
        name="consistency",
        summary="Prove that the log up to one block is the beginning of the log up to another.",
        parameters=(
            GROUP,
            _height("older", "The height of the older block."),
            _height("newer", "The height of the newer block."),
        ),
        result=Result(type=ConsistencyProof, render=same),
        errors=(HeightUnknown,),
        method=lambda broker: broker.proving.proveConsistency,
    ),
    Operation(
        name="genesis",
        summary="Tell the beginning of the chain, from which every proof starts.",
        parameters=(GROUP,),
        result=Result(type=GenesisFields, render=same),
        method=lambda broker: broker.proving.getGenesis,
    ),
)
