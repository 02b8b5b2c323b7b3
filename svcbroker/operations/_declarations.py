"""
What an operation is, and how it is tied to a broker and a form of input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from attrs import field, frozen
from msgspec import Struct
from msgspec.structs import astuple
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


class _Step(Struct, frozen=True):
    """
    How one parameter is taken from what was given.

    @ivar key: what it is called there; C{None} where it is made of everything.
    @ivar read: reads its value.
    @ivar fallback: what it is where it is absent.
    """

    name: str
    key: Any
    read: Callable[[Any], Any]
    fallback: Callable[[], Any]


def _textStep(parameter: Parameter) -> _Step:
    kind, name = parameter.kind, parameter.name
    if isinstance(kind, ExtensionsKind):
        return _Step(name, None, kind.fromFields, parameter.fallback)
    return _Step(name, name.encode("ascii"), kind.fromText, parameter.fallback)


def _jsonStep(parameter: Parameter) -> _Step:
    return _Step(parameter.name, parameter.name, parameter.kind.fromJSON, parameter.fallback)


@frozen
class _Form:
    """
    A form of input.

    @ivar interfaceType: the interface that it belongs to.
    @ivar makeStep: how a parameter is taken from it.
    @ivar absent: values that are as good as none.
    """

    interfaceType: InterfaceType
    makeStep: Callable[[Parameter], _Step]
    absent: tuple[Any, ...]


_TEXT = _Form(InterfaceType.RESTFUL, _textStep, (None, b""))
_JSON = _Form(InterfaceType.JSON_RPC, _jsonStep, (None,))


def _bind(operation: Operation, broker: Broker, form: _Form) -> Callable[[Any], Deferred[Any]]:
    method = operation.method(broker)
    if operation.isByInterface:
        method = partial(method, form.interfaceType)
    return _bindParameters(operation, broker, form, method)


def _bindParameters(
    operation: Operation, broker: Broker, form: _Form, method: Callable[..., T]
) -> Callable[[Any], T]:
    steps = []
    for parameter in operation.checkOrder:
        step = form.makeStep(parameter)
        if isinstance(parameter.kind, GroupKind):
            step = _resolving(broker, step)
        steps.append(astuple(step))
    absent = form.absent

    def call(given: Any) -> T:
        arguments: dict[str, Any] = {}
        for name, key, read, fallback in steps:
            if key is None:
                arguments[name] = read(given)
                continue
            value = given.get(key)
            try:
                arguments[name] = fallback() if value in absent else read(value)
            except ParameterInvalid as error:
                raise ParameterInvalid(f"{name}: {error.message}") from None
        return method(**arguments)

    return call


def _resolving(broker: Broker, step: _Step) -> _Step:
    resolve, read, fallback = broker.groups.resolve, step.read, step.fallback
    return _Step(
        step.name, step.key, lambda given: resolve(read(given)), lambda: resolve(fallback())
    )


def bindText(operation: Operation, broker: Broker) -> TextCall:
    """
    Make an operation of REST callable with the fields of a URL or a form: names and values as
    bytes.
    Fields that it does not know are ignored.

    The callable raises, or its Deferred fails with, a C{BrokerError}.
    """
    return _bind(operation, broker, _TEXT)


def bindJSON(operation: Operation, broker: Broker) -> JSONCall:
    """
    Make an operation of JSON-RPC callable with the members of a JSON object. Members that it
    does not know are ignored.

    The callable raises, or its Deferred fails with, a C{BrokerError}.
    """
    return _bind(operation, broker, _JSON)


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
    read = _bindParameters(operation, broker, _JSON, together.item)
    return read, together.method(broker)
