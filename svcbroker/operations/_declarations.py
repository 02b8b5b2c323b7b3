"""
What an operation is: parameters, a result, and the broker's method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from attrs import field, frozen
from twisted.internet.defer import Deferred

from ..access import Principal
from ..broker import Broker
from ..errors import BrokerError, ParameterInvalid
from ._types import EventIdType, GroupType, ParameterType, SeenEventType

_ErrorType: TypeAlias = type[BrokerError]

REQUIRED: Final = object()
"""The default of a required parameter."""
OMITTED: Final = object()
"""
The default of a parameter that the method is not given where it is absent. For calls that are made
often: reading an absent one costs nothing.
"""


@frozen(kw_only=True)
class Parameter:
    """
    One parameter of an operation. An empty text and a JSON C{null} are as good as none.

    @ivar name: its name on every wire.
    @ivar type: how it is read.
    @ivar description: what it means, in a sentence.
    @ivar default: its value where it is absent, unless it is required.
    @ivar absent: the error where it is required and absent.
    @ivar argument: the name of the method's argument: the same, unless that is a word of Python.
    """

    name: str
    type: ParameterType
    description: str
    default: Any = REQUIRED
    absent: _ErrorType = ParameterInvalid
    argument: str = field()

    @argument.default
    def _argument(self) -> str:
        return self.name

    @property
    def isRequired(self) -> bool:
        """Whether a call without it fails."""
        return self.default is REQUIRED

    def fallback(self) -> Any:
        """
        The value of an absent parameter, which is not L{OMITTED}.

        @raise BrokerError: it is required.
        """
        if self.default is REQUIRED:
            if self.absent is ParameterInvalid:
                raise ParameterInvalid("is required")
            raise self.absent()
        return self.default


@frozen(kw_only=True)
class Result:
    """
    The result of an operation.

    @ivar type: its type on the wire, as msgspec knows types.
    @ivar render: makes a value of that type of the broker's result.
    """

    type: Any
    render: Callable[[Any], Any]


@frozen(kw_only=True)
class BatchMethod:
    """
    How many calls of one operation are made at once.

    @ivar item: makes the argument of one call of its parameters: by their names, without those that
        are L{OMITTED}; or in their order, with C{None} for these.
    @ivar method: finds the broker's method, which takes a principal and a sequence of such
        arguments; its Deferred fires with the outcome of each: a result, or a C{BrokerError}.
    """

    item: Callable[..., Any]
    method: Callable[[Broker], Callable[[Principal, Sequence[Any]], Deferred[Sequence[Any]]]]


@frozen(kw_only=True)
class Operation:
    """
    One call of the interface.

    @ivar name: its name on every wire; for an admin query its path below C{/admin/}.
    @ivar summary: what it does, in a sentence.
    @ivar parameters: in the order of the interface's table, which is the order of positional
        parameters too.
    @ivar result: its result.
    @ivar errors: how it can fail, besides
        L{COMMON_ERRORS<svcbroker.operations._failures.COMMON_ERRORS>}.
    @ivar method: finds the broker's method, which takes a principal, and the parameters by name.
    @ivar batch: how many calls are made at once, where that is less work.
    @ivar isGroupFirst: whether the group is looked up before the other parameters are read.
    @ivar isByAddress: whether the method is told, as C{remote}, the address of the client.
    @ivar isByInterface: whether the method is told, as C{interfaceType}, by which of the two
        interfaces it was called.
    @ivar hasAfter: whether a call may name an event that is to be executed first, by its last
        parameter. The method is not told.
    @ivar namesEvent: whether it is about an event, which this node may not have yet.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    result: Result
    errors: tuple[type[BrokerError], ...] = ()
    method: Callable[[Broker], Callable[..., Deferred[Any]]]
    batch: BatchMethod | None = None
    isGroupFirst: bool = True
    isByAddress: bool = False
    isByInterface: bool = False
    checkOrder: tuple[Parameter, ...] = field(init=False)
    hasAfter: bool = field(init=False)
    namesEvent: bool = field(init=False)

    @hasAfter.default
    def _hasAfter(self) -> bool:
        return any(isinstance(each.type, SeenEventType) for each in self.parameters)

    @namesEvent.default
    def _namesEvent(self) -> bool:
        types = {type(each.type) for each in self.parameters}
        return {EventIdType, GroupType} <= types

    @checkOrder.default
    def _checkOrder(self) -> tuple[Parameter, ...]:
        if not self.isGroupFirst:
            return self.parameters
        return tuple(sorted(self.parameters, key=lambda each: not isinstance(each.type, GroupType)))
