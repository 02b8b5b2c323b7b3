"""
Binding: an operation, a broker and a form of input make a function to call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias, TypedDict

from attrs import frozen
from msgspec import DecodeError, Raw, Struct, ValidationError, defstruct
from msgspec.json import Decoder
from msgspec.structs import astuple
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IAddress
from twisted.python.failure import Failure

from ..access import Principal
from ..broker import Calls
from ..errors import BrokerError, GroupUnknown, HeightUnknown, ParameterInvalid, SignatureInvalid
from ..model import EventId, InterfaceType
from ..net.addresses import peerText
from ..net.budgets import Lane, Unsent
from ._declarations import OMITTED, REQUIRED, Operation, Parameter
from ._types import ExtensionsType, GroupType


class Connection(Protocol):
    """
    The connection that a call comes by.

    @ivar lane: its share of the time in which calls are made.
    @ivar unsent: the bytes of its answers that are not sent yet.
    """

    @property
    def lane(self) -> Lane: ...

    @property
    def unsent(self) -> Unsent: ...

    def getPeer(self) -> IAddress:
        """The address of the client."""


TextCall: TypeAlias = Callable[[Principal, Mapping[bytes, bytes], Connection], Deferred[Any]]
JSONCall: TypeAlias = Callable[[Principal, Mapping[str, object], Connection], Deferred[Any]]
ParamsCall: TypeAlias = Callable[[Principal, Raw, Connection], Deferred[Any]]
_Reader: TypeAlias = Callable[[Principal, Any], dict[str, Any]]
_Columns: TypeAlias = Callable[[Sequence[Any]], Iterable[Sequence[Any]]]
ManyCall: TypeAlias = Callable[[Principal, Sequence[Any]], Deferred[Sequence[Any]]]

AFTER: Final = "after"
"""The name of the last parameter of those calls that may name an event to be executed first."""

_SHOWN = 100
"""The length of the part of a wrong value that is shown, in characters."""

_anyDecoder = Decoder()
_FIRST: Final = itemgetter(0)


class _Step(Struct, frozen=True):
    """
    The reading of one parameter from the input.

    @ivar argument: the name of the method's argument.
    @ivar key: its key in the input; C{None} where it is made of all the input.
    @ivar read: reads its value.
    @ivar default: its value where it is absent; L{REQUIRED} for an error.
    @ivar fallback: gives that, or raises the error.
    @ivar isGroup: whether it is the id of a group.
    """

    name: str
    argument: str
    key: Any
    read: Callable[[Any], Any]
    default: Any
    fallback: Callable[[], Any]
    isGroup: bool


def _textStep(parameter: Parameter) -> _Step:
    type = parameter.type
    if isinstance(type, ExtensionsType):
        return _step(parameter, None, type.fromFields)
    return _step(parameter, parameter.name.encode("ascii"), type.fromText)


def _jsonStep(parameter: Parameter) -> _Step:
    return _step(parameter, parameter.name, parameter.type.fromJSON)


def _typedStep(parameter: Parameter) -> _Step:
    return _step(parameter, parameter.name, parameter.type.fromTyped)


def _step(parameter: Parameter, key: Any, read: Callable[[Any], Any]) -> _Step:
    isGroup = isinstance(parameter.type, GroupType)
    default, fallback = parameter.default, parameter.fallback
    return _Step(parameter.name, parameter.argument, key, read, default, fallback, isGroup)


@frozen
class _Form:
    """
    A form of input.

    @ivar interfaceType: the interface that it belongs to.
    @ivar makeStep: how a parameter is read from it.
    @ivar absent: values that stand for an absent parameter.
    @ivar columns: makes what gets the values of keys in many calls, by key.
    """

    interfaceType: InterfaceType
    makeStep: Callable[[Parameter], _Step]
    absent: tuple[Any, ...]
    columns: Callable[[Sequence[Any]], _Columns]


def _valueColumns(keys: Sequence[Any]) -> _Columns:
    return lambda calls: [
        calls if key is None else [each.get(key) for each in calls] for key in keys
    ]


def _memberColumns(keys: Sequence[str]) -> _Columns:
    # The members are in the order of the keys.
    return lambda calls: zip(*map(astuple, calls), strict=True)


_TEXT = _Form(InterfaceType.RESTFUL, _textStep, (None, b""), _valueColumns)
_JSON = _Form(InterfaceType.JSON_RPC, _jsonStep, (None,), _valueColumns)
_TYPED = _Form(InterfaceType.JSON_RPC, _typedStep, (None,), _memberColumns)


def _method(operation: Operation, calls: Calls, form: _Form) -> Callable[..., Deferred[Any]]:
    """Make what makes one call, of the parameters by their names."""
    method, record, isForMany = operation.method(calls), operation.record, operation.isForMany
    if record is None:
        return method
    if operation.isByInterface:
        record = partial(record, interfaceType=form.interfaceType)

    def call(principal: Principal, **arguments: Any) -> Deferred[Any]:
        given = record(**arguments)
        if isForMany:
            return method(principal, (given,)).addCallback(_FIRST)
        return method(principal, given)

    return call


def _reader(operation: Operation, calls: Calls, form: _Form) -> _Reader:
    """Make what reads the arguments of a call, by their names, from a form of input."""
    every, usual, omitted = [], [], set()
    for parameter in operation.checkOrder:
        step = form.makeStep(parameter)
        every.append(astuple(step))
        if parameter.default is OMITTED:
            omitted.add(step.key)
        else:
            usual.append(every[-1])
    absent, resolve = form.absent, calls.broker.groups.resolve
    private = {each.name for each in operation.parameters if each.type.isPrivate}

    def read(principal: Principal, given: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        steps = usual if omitted.isdisjoint(given) else every
        for name, argument, key, readValue, default, fallback, isGroup in steps:
            if key is None:
                arguments[argument] = readValue(given)
                continue
            value = given.get(key)
            # Most values are true, and that takes less to be found out.
            isAbsent = not value and value in absent
            if isAbsent and key in omitted:
                continue
            try:
                if isAbsent:
                    found = fallback() if default is REQUIRED else default
                else:
                    found = readValue(value)
                arguments[argument] = resolve(principal, found) if isGroup else found
            except (ParameterInvalid, SignatureInvalid) as error:
                shown = "" if name in private else _show(value)
                raise type(error)(f"{name}: {error.message}{shown}") from None
            except GroupUnknown as error:
                if isAbsent:
                    raise
                raise GroupUnknown(f"{name}: {error.message}") from None
        return arguments

    return read


def _show(value: Any) -> str:
    """A wrong value for the end of a message; nothing where it is empty or no single value."""
    if isinstance(value, bytes):
        value = value[:_SHOWN].decode("utf-8", "replace")
    if isinstance(value, str):
        return f": {value[:_SHOWN]}" if value else ""
    # Longer numbers take long to be written.
    isShort = isinstance(value, float) or (isinstance(value, int) and value.bit_length() < _SHOWN)
    return f": {value}" if isShort else ""


@cache
def _membersDecoder(members: tuple[tuple[str, Any], ...]) -> Decoder[Any]:
    """The decoder of an object with some of these members, each with a type."""
    return Decoder(TypedDict("Params", dict(members), total=False))  # type: ignore[operator]


def _paramsReader(operation: Operation, calls: Calls) -> _Reader:
    """
    Make what reads the arguments of a call from the C{params} of JSON-RPC, as JSON text.

    They are decoded into the types of the parameters at once. If that fails they are decoded again
    without types, to find which parameter is wrong and how, or that none is.
    """
    members = tuple((each.name, each.type.jsonType | None) for each in operation.parameters)
    decoder, names = _membersDecoder(members), tuple(name for name, _ in members)
    typed = _reader(operation, calls, _TYPED)
    untyped = _reader(operation, calls, _JSON)

    def read(principal: Principal, params: Raw) -> dict[str, Any]:
        try:
            given = decoder.decode(params)
        except (DecodeError, RecursionError):
            members = _members(params, names)
            try:
                return untyped(principal, members)
            except GroupUnknown as error:
                if bytes(params)[:1] != b"[":
                    raise
                # Content is easily taken for the second parameter.
                order = ", ".join(names)
                raise GroupUnknown(f"{error.message}; by position they are {order}") from None
        return typed(principal, given)

    return read


def _members(params: Raw, names: Sequence[str]) -> Mapping[str, object]:
    """
    The parameters by their names.

    @raise ParameterInvalid: there are too many by position, a number is out of range, or they
        are nested too deeply.
    """
    if not bytes(params):
        return {}
    try:
        given = _anyDecoder.decode(params)
    except ValidationError:
        raise ParameterInvalid("a number is out of range") from None
    except RecursionError:
        raise ParameterInvalid("the parameters are nested too deeply") from None
    if isinstance(given, list):
        if len(given) > len(names):
            raise ParameterInvalid("there are too many parameters")
        return dict(zip(names, given, strict=False))
    return given or {}


def _bind(
    operation: Operation, calls: Calls, form: _Form, read: _Reader
) -> Callable[[Principal, Any, Connection], Deferred[Any]]:
    method, isByAddress = _method(operation, calls, form), operation.isByAddress
    mayWait, isPublish = operation.hasAfter, operation.isForMany
    # Only in a network another node may have told of an event that is not here yet.
    mayBeBehind = operation.namesEvent and calls.broker.hasNetworks

    def call(principal: Principal, given: Any, connection: Connection) -> Deferred[Any]:
        if isPublish:
            connection.unsent.eventsSent += 1
        arguments = read(principal, given)
        if isByAddress:
            arguments["remote"] = peerText(connection.getPeer())
        if mayWait and AFTER in arguments:
            seen = arguments.pop(AFTER)
            return reach(principal, arguments, seen, connection)
        made = method(principal, **arguments)
        return made.addErrback(again, principal, arguments, connection) if mayBeBehind else made

    def reach(
        principal: Principal, arguments: dict[str, Any], eventId: EventId, connection: Connection
    ) -> Deferred[Any]:
        remote = peerText(connection.getPeer())
        reached = calls.broker.reach(principal, arguments["groupId"], eventId, remote)
        return reached.addCallback(lambda _: method(principal, **arguments))

    def again(
        failure: Failure, principal: Principal, arguments: dict[str, Any], connection: Connection
    ) -> Any:
        failure.trap(HeightUnknown)
        return reach(principal, arguments, arguments["eventId"], connection)

    return call


def bindText(operation: Operation, calls: Calls) -> TextCall:
    """
    Make an operation of REST callable with a principal, the fields of a URL or a form (names and
    values as bytes) and the connection that they came by. Fields that it does not know are ignored.

    The callable raises, or its Deferred fails with, a C{BrokerError}.
    """
    return _bind(operation, calls, _TEXT, _reader(operation, calls, _TEXT))


def bindJSON(operation: Operation, calls: Calls) -> JSONCall:
    """
    Make an operation callable with a principal, the members of a JSON object and the connection
    that they came by. Members that it does not know are ignored.

    The callable raises, or its Deferred fails with, a C{BrokerError}.
    """
    return _bind(operation, calls, _JSON, _reader(operation, calls, _JSON))


def bindParams(operation: Operation, calls: Calls) -> ParamsCall:
    """
    Make an operation callable with a principal, the C{params} of JSON-RPC (the JSON text of an
    object or an array, C{null}, or nothing) and the connection that they came by. Members that it
    does not know are ignored.

    The callable raises, or its Deferred fails with, a C{BrokerError}.
    """
    return _bind(operation, calls, _TYPED, _paramsReader(operation, calls))


def bindTextBatch(operation: Operation, calls: Calls) -> ManyCall | None:
    """
    Make an operation of REST callable with a principal and the fields of many calls. Its Deferred
    fires with the outcome of each: the result, or the C{BrokerError} that the callable of
    L{bindText} would raise or fail with.

    @return: C{None} where the operation takes one call at a time.
    """
    item, perform = operation.record, operation.method(calls)
    if item is None or not operation.isForMany:
        return None
    read = _reader(operation, calls, _TEXT)
    readColumns = _columnsReader(operation, calls, _TEXT)

    def call(
        principal: Principal, calls: Sequence[Mapping[bytes, bytes]]
    ) -> Deferred[Sequence[Any]]:
        try:
            items = list(map(item, *readColumns(principal, calls)))
        except BrokerError:
            return callEach(principal, calls)
        return perform(principal, items)

    def callEach(
        principal: Principal, calls: Sequence[Mapping[bytes, bytes]]
    ) -> Deferred[Sequence[Any]]:
        items: list[Any] = []
        errors: dict[int, BrokerError] = {}
        for place, fields in enumerate(calls):
            try:
                items.append(item(**read(principal, fields)))
            except BrokerError as error:
                errors[place] = error.with_traceback(None)
        return perform(principal, items).addCallback(_withErrors, errors)

    return call


def _withErrors(outcomes: Sequence[Any], errors: Mapping[int, BrokerError]) -> Sequence[Any]:
    """Insert errors at their places, which are rising."""
    found = list(outcomes)
    for place, error in errors.items():
        found.insert(place, error)
    return found


@frozen
class BatchCalls:
    """
    One operation for many calls of JSON-RPC at once.

    @ivar plainParams: what the C{params} of a plain call are decoded into: one that has its
        parameters by their names.
    @ivar read: reads the C{params} of a call of a principal, as JSON text.
    @ivar readPlain: reads those of many plain calls. It raises an error if those of any call are
        wrong, which L{read} finds.
    @ivar readMany: reads those of many calls, as JSON text. It raises an error if those of any call
        are wrong, or the call is not plain.
    @ivar perform: makes calls that were read, for that principal; its Deferred fires with the
        outcome of each.
    """

    plainParams: type[Struct]
    read: Callable[[Principal, Raw], Any]
    readPlain: Callable[[Principal, Sequence[Struct]], list[Any]]
    readMany: Callable[[Principal, Sequence[Raw]], list[Any]]
    perform: ManyCall


def bindBatch(operation: Operation, calls: Calls) -> BatchCalls | None:
    """
    Make an operation callable with many calls of JSON-RPC at once.

    @return: C{None} where the operation takes one call at a time.
    """
    item = operation.record
    if item is None or not operation.isForMany:
        return None
    read = _paramsReader(operation, calls)
    readColumns = _columnsReader(operation, calls, _TYPED)
    fields = [(each.name, each.type.jsonType | None, None) for each in operation.parameters]
    plainParams = defstruct("PlainParams", fields, gc=False)
    decoder: Decoder[Any] = Decoder(list[plainParams])  # type: ignore[valid-type]

    def readPlain(principal: Principal, calls: Sequence[Struct]) -> list[Any]:
        return list(map(item, *readColumns(principal, calls)))

    def readMany(principal: Principal, calls: Sequence[Raw]) -> list[Any]:
        try:
            plain = decoder.decode(b"[%b]" % b",".join(calls))
        except (DecodeError, RecursionError):
            plain = ()
        if len(plain) != len(calls):
            raise ParameterInvalid("not all calls are plain")
        return readPlain(principal, plain)

    def readOne(principal: Principal, params: Raw) -> Any:
        arguments = read(principal, params)
        if AFTER in arguments:
            raise _inBatch()
        return item(**arguments)

    return BatchCalls(
        plainParams,
        readOne,
        readPlain,
        readMany,
        operation.method(calls),
    )


def _columnsReader(
    operation: Operation, calls: Calls, form: _Form
) -> Callable[[Principal, Sequence[Any]], Iterable[Sequence[Any]]]:
    """
    Make what reads the arguments of many calls from a form of input: parameter by parameter, in
    their order, since many calls often have the same values; C{None} for one that is L{OMITTED}.
    It raises an error if any value is wrong. There is one call at least.
    """
    steps = [form.makeStep(each) for each in operation.parameters]
    columns = form.columns([step.key for step in steps])
    readers = [
        _columnReader(step, parameter, calls, form.absent)
        for step, parameter in zip(steps, operation.parameters, strict=True)
        if parameter.name != AFTER
    ]

    def readColumns(principal: Principal, calls: Sequence[Any]) -> Iterable[Sequence[Any]]:
        found = list(columns(calls))
        if operation.hasAfter and any(found.pop()):
            raise _inBatch()
        return [read(principal, values) for read, values in zip(readers, found, strict=True)]

    return readColumns


def _inBatch() -> ParameterInvalid:
    return ParameterInvalid("after: is for a publish that is made alone, not in a batch")


def _columnReader(
    step: _Step, parameter: Parameter, calls: Calls, absent: tuple[Any, ...]
) -> Callable[[Principal, Sequence[Any]], Sequence[Any]]:
    """
    Make what reads the values of a parameter in many calls, as L{_reader} reads each.

    @param absent: values that stand for an absent parameter.
    """
    isOmitted, resolve = parameter.default is OMITTED, calls.broker.groups.resolve
    readValue, fallback = step.read, (lambda: None) if isOmitted else step.fallback

    def readEach(principal: Principal, values: Sequence[Any]) -> Sequence[Any]:
        if values.count(None) == len(values):
            return [fallback()] * len(values)
        return [
            fallback() if not value and value in absent else readValue(value) for value in values
        ]

    def readDistinct(principal: Principal, values: Sequence[Any]) -> Sequence[Any]:
        # Equal texts are one object from here on: the broker looks at such a value once.
        distinct = list(set(values))
        found = dict(zip(distinct, readEach(principal, distinct), strict=True))
        if step.isGroup:
            found = {value: resolve(principal, group) for value, group in found.items()}
        return [found[value] for value in values]

    return readDistinct if parameter.type.jsonType is str and not isOmitted else readEach
