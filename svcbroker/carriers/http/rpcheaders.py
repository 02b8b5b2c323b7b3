"""
Header fields of JSON-RPC requests that become parameters of their calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from msgspec import DecodeError, Raw
from msgspec.json import Decoder

from ...errors import ParameterInvalid
from ...operations import EXTENSIONS, IDEMPOTENCY_KEY, SEEN, SIGNED_PARAMETERS, withTrace
from .headers import PublishHeaders
from .rest import differentKeys, unquoted
from .routes import encode

_NULL = Raw(b"null")
_EMPTY = Raw(b'""')

_paramsDecoder = Decoder(dict[str, Raw] | list[Raw] | None)
_extensionsDecoder = Decoder(dict[str, str] | None)


def addHeaders(params: Raw, names: Sequence[str], headers: PublishHeaders) -> Raw:
    """
    Add header fields to the parameters of a call. They stay an object or an array. Parameters
    that cannot be read stay as they are: they are refused later.

    @param params: the JSON text.
    @param names: the names of the parameters, in their order by position.
    @raise ParameterInvalid: they have another idempotency key, or name another event.
    """
    try:
        given = _Params(names, _paramsDecoder.decode(bytes(params) or b"{}") or {})
        if headers.trace and all(given.get(name) == _NULL for name in SIGNED_PARAMETERS):
            name = EXTENSIONS.name
            extensions = _extensionsDecoder.decode(given.get(name)) or {}
            given = given.having(name, Raw(encode(withTrace(extensions, headers.trace))))
    except (DecodeError, RecursionError):
        return params
    if headers.after:
        added = Raw(encode(headers.after.decode("latin-1")))
        if given.get(SEEN.name) not in (_NULL, _EMPTY, added):
            raise ParameterInvalid("after: differs from the header svc-after")
        given = given.having(SEEN.name, added)
    if headers.idempotencyKey:
        added = Raw(encode(unquoted(headers.idempotencyKey).decode("latin-1")))
        if given.get(IDEMPOTENCY_KEY.name) not in (_NULL, _EMPTY, added):
            raise differentKeys()
        given = given.having(IDEMPOTENCY_KEY.name, added)
    return Raw(encode(given.members))


@frozen
class _Params:
    """
    Parameters, by their names or in an array.
    """

    _names: Sequence[str]
    members: dict[str, Raw] | list[Raw]

    def get(self, name: str) -> Raw:
        """A parameter; null where there is none."""
        if isinstance(self.members, dict):
            return self.members.get(name, _NULL)
        place = self._names.index(name)
        return self.members[place] if place < len(self.members) else _NULL

    def having(self, name: str, value: Raw) -> _Params:
        """The same with another value of one."""
        if isinstance(self.members, dict):
            return _Params(self._names, {**self.members, name: value})
        place = self._names.index(name)
        members = self.members + [_NULL] * (place + 1 - len(self.members))
        members[place] = value
        return _Params(self._names, members)
