"""
What the call about a group's nodes takes, and what it answers.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Final

from msgspec import Struct

from .. import chain
from ..errors import ParameterInvalid
from ._declarations import Operation
from ._faultvalues import MAX_NODES, nodeIndex
from ._operations import GROUP
from ._parameters import Kind, NumberKind, Parameter
from ._results import envelope


class IndexesKind(Kind):
    """Indexes of nodes."""

    def fromJSON(self, value: object) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) > MAX_NODES:
            raise ParameterInvalid("is not a list of nodes")
        return tuple(map(nodeIndex, value))


class ChangeKind(Kind):
    """A change of the nodes, with its signatures."""

    def fromJSON(self, value: object) -> chain.ValidatorChange:
        if not isinstance(value, str):
            raise ParameterInvalid("is not a string")
        try:
            return chain.ValidatorChange.decode(a2b_base64(value, strict_mode=True))
        except ValueError:
            raise ParameterInvalid("is not Base64") from None
        except chain.Malformed as error:
            raise ParameterInvalid(f"is not a change: {error}") from None


class Validator(Struct, frozen=True):
    """One node of a set: its public key, in hexadecimal digits."""

    index: int
    nodeId: str


class Validators(Struct, frozen=True):
    """The nodes that decide the next block, after how many changes since the genesis."""

    changes: int
    nodes: list[Validator]


def validatorsOf(nodes: chain.ValidatorSet) -> Validators:
    """What is on the wire."""
    return Validators(
        changes=nodes.generation,
        nodes=[Validator(index, key.hex()) for index, key in enumerate(nodes.keys)],
    )


NODE_CALLS: Final = (
    Operation(
        name="validators",
        summary="Give nodes new keys, change how many there are, or just tell which they are.",
        parameters=(
            GROUP,
            Parameter(
                name="rotate",
                kind=IndexesKind(),
                default=(),
                description="The indexes of the nodes that get new keys, ``[0, 2]``.",
            ),
            Parameter(
                name="count",
                kind=NumberKind(ParameterInvalid, 1),
                default=None,
                description="How many nodes there are to be.",
            ),
        ),
        result=envelope(Validators, validatorsOf),
        method=lambda broker: broker.operator.changeNodes,
    ),
    Operation(
        name="validators/submit",
        summary="Hand in a change of the nodes that all whom it concerns have signed.",
        parameters=(
            GROUP,
            Parameter(
                name="change",
                kind=ChangeKind(),
                description="The change as the chain takes it, with its signatures, in Base64.",
            ),
        ),
        result=envelope(Validators, validatorsOf),
        method=lambda broker: broker.operator.submitChange,
    ),
)
