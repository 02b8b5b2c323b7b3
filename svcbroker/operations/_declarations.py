"""
What an operation is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen
from twisted.internet.defer import Deferred

from ..broker import Broker
from ..errors import BrokerError
from ._parameters import GroupKind, Parameter
from ._results import Result


@frozen(kw_only=True)
class BatchMethod:
    """
    How many calls of one operation are made at once.

    @ivar item: makes one of them of its parameters, by their names.
    @ivar method: finds the broker's method, which takes a sequence of them, and answers with what
        came of each: the result, or a C{BrokerError}.
    """

    item: Callable[..., Any]
    method: Callable[[Broker], Callable[[Sequence[Any]], Deferred[Sequence[Any]]]]


@frozen(kw_only=True)
class Operation:
    """
    One thing that clients can ask of the broker.

    @ivar name: its name on every wire; for an admin query its path below C{/admin/}.
    @ivar summary: what it does, in a sentence.
    @ivar parameters: in the order of the interface's table, which is the order of positional
        parameters too.
    @ivar result: what it answers.
    @ivar errors: how it can fail, besides what everything can
        (L{COMMON_ERRORS<svcbroker.operations._operations.COMMON_ERRORS>}).
    @ivar method: finds the broker's method, which takes the parameters by name.
    @ivar batch: how many calls are made at once, where that is less work.
    @ivar isGroupFirst: whether the group is looked up before the other parameters are read.
    @ivar isByInterface: whether the method is told, as C{interfaceType}, by which of the two
        interfaces it was called.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    result: Result
    errors: tuple[type[BrokerError], ...] = ()
    method: Callable[[Broker], Callable[..., Deferred[Any]]]
    batch: BatchMethod | None = None
    isGroupFirst: bool = True
    isByInterface: bool = False
    checkOrder: tuple[Parameter, ...] = field(init=False)

    @checkOrder.default
    def _checkOrder(self) -> tuple[Parameter, ...]:
        if not self.isGroupFirst:
            return self.parameters
        return tuple(sorted(self.parameters, key=lambda each: not isinstance(each.kind, GroupKind)))
