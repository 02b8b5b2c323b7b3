"""
What an operation is, and how it is tied to a broker and a form of input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from attrs import field, frozen
from twisted.internet.defer import Deferred

from ..broker import Broker
from ..errors import BrokerError, ParameterInvalid
from ..model import InterfaceType
from ._parameters import ExtensionsKind, GroupKind, Parameter
from ._results import Result

TextCall: TypeAlias = Callable[[Mapping[bytes, bytes]], Deferred[Any]]
JSONCall: TypeAlias = Callable[[Mapping[str, object]], Deferred[Any]]
JSONReader: TypeAlias = Callable[[Mapping[str, object]], Any]

T = TypeVar("T")


@frozen(kw_only=True)
class Together:
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
    @ivar together: how many calls are made at once, where that is less work.
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
    together: Together | None = None
    isGroupFirst: bool = True
    isByInterface: bool = False
    checkOrder: tuple[Parameter, ...] = field(init=False)

    @checkOrder.default
    def _checkOrder(self) -> tuple[Parameter, ...]:
        if not self.isGroupFirst:
            return self.parameters
        return tuple(sorted(self.parameters, key=lambda each: not isinstance(each.kind, GroupKind)))


def _bind(
    operation: Operation,
    broker: Broker,
    interfaceType: InterfaceType,
    taker: Callable[[Parameter], Callable[[Any], Any]],
) -> Callable[[Any], Deferred[Any]]:
    method = operation.method(broker)
    if operation.isByInterface:
        method = partial(method, interfaceType)
    return _bindParameters(operation, broker, method, taker)


def _bindParameters(
    operation: Operation,
    broker: Broker,
    method: Callable[..., T],
    taker: Callable[[Parameter], Callable[[Any], Any]],
) -> Callable[[Any], T]:
    takers: list[tuple[str, Callable[[Any], Any]]] = []
    for parameter in operation.checkOrder:
        take = taker(parameter)
        if isinstance(parameter.kind, GroupKind):
            take = partial(_takeGroup, broker, take)
        takers.append((parameter.name, take))

    def call(given: Any) -> T:
        return method(**{name: take(given) for name, take in takers})

    return call


def _takeGroup(broker: Broker, take: Callable[[Any], Any], given: Any) -> str:
    return broker.groups.resolve(take(given))


def bindText(operation: Operation, broker: Broker) -> TextCall:
    """
    Make an operation of REST callable with the fields of a URL or a form: names and values as
    bytes.
    Fields that it does not know are ignored.

    The callable raises, or its Deferred fails with, a C{BrokerError}.
    """
    return _bind(operation, broker, InterfaceType.RESTFUL, _textTaker)


def bindJSON(operation: Operation, broker: Broker) -> JSONCall:
    """
    Make an operation of JSON-RPC callable with the members of a JSON object. Members that it
    does not know are ignored.

    The callable raises, or its Deferred fails with, a C{BrokerError}.
    """
    return _bind(operation, broker, InterfaceType.JSON_RPC, _jsonTaker)


def bindTogether(
    operation: Operation, broker: Broker
) -> tuple[JSONReader, Callable[[Sequence[Any]], Deferred[Sequence[Any]]]] | None:
    """
    Make an operation callable with many calls of JSON-RPC at once; C{None} where it is not to
    be had.

    @return: what makes one call of the members of a JSON object, or raises a C{BrokerError}; and
        what takes many of these and answers with what came of each.
    """
    together = operation.together
    if together is None:
        return None
    read = _bindParameters(operation, broker, together.item, _jsonTaker)
    return read, together.method(broker)


def _textTaker(parameter: Parameter) -> Callable[[Mapping[bytes, bytes]], Any]:
    kind = parameter.kind
    if isinstance(kind, ExtensionsKind):
        return kind.fromFields
    name, read, fallback = parameter.name.encode("ascii"), kind.fromText, parameter.fallback

    def take(fields: Mapping[bytes, bytes]) -> Any:
        raw = fields.get(name)
        try:
            return read(raw) if raw else fallback()
        except ParameterInvalid as error:
            raise _named(parameter, error) from None

    return take


def _jsonTaker(parameter: Parameter) -> Callable[[Mapping[str, object]], Any]:
    name, read, fallback = parameter.name, parameter.kind.fromJSON, parameter.fallback

    def take(members: Mapping[str, object]) -> Any:
        value = members.get(name)
        try:
            return fallback() if value is None else read(value)
        except ParameterInvalid as error:
            raise _named(parameter, error) from None

    return take


def _named(parameter: Parameter, error: ParameterInvalid) -> ParameterInvalid:
    return ParameterInvalid(f"{parameter.name}: {error.message}")
