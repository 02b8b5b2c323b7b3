"""
JSON-RPC 2.0 to the nodes of a network: calls, the bodies of requests, and the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
from attrs import frozen
from msgspec import Raw, Struct
from twisted.web.http_headers import Headers

from ..net.deferreds import asDeferred
from ..net.http import HttpClient, readBody

T = TypeVar("T")

_HEADERS: Final = Headers({b"Content-Type": [b"application/json"]})


@frozen
class RpcCall(Generic[T]):
    """
    A call of a node, and how its answer is read.

    @ivar parameters: by name or by place.
    @ivar read: reads the JSON of a result; raises C{ValueError} where it is none.
    """

    method: str
    parameters: Mapping[str, object] | Sequence[object]
    read: Callable[[bytes], T]


class RpcRefusal(Struct, frozen=True):
    """An error that a node tells of."""

    code: int = 0
    message: str = ""
    data: Any = None

    @property
    def detail(self) -> str:
        """The text in the data, where some nodes tell what was wrong; empty where there is none."""
        return self.data if isinstance(self.data, str) else ""


class RpcAnswer(Struct, frozen=True):
    """The answer to one call."""

    id: int | str | None = None
    result: Raw = Raw(b"null")
    error: RpcRefusal | None = None


class NoRpcAnswer(Exception):
    """A body that does not answer the calls. The text is for an operator."""


_answer = msgspec.json.Decoder(RpcAnswer)
_answers = msgspec.json.Decoder(list[RpcAnswer])
_encoder = msgspec.json.Encoder()


def encodeCalls(calls: Sequence[RpcCall[Any]]) -> bytes:
    """The body of a request with some calls: a list, unless it is one."""
    forms = [
        {"jsonrpc": "2.0", "id": index, "method": call.method, "params": call.parameters}
        for index, call in enumerate(calls)
    ]
    return _encoder.encode(forms if len(forms) > 1 else forms[0])


def decodeAnswers(calls: Sequence[RpcCall[Any]], body: bytes) -> list[RpcAnswer]:
    """
    Read the answers to what L{encodeCalls} makes.

    @return: an answer for each call, in the order of the calls. Where a node refuses a whole
        request, each has its error.
    @raise NoRpcAnswer: there is none to one of them.
    """
    try:
        # The answer to one call is no list, nor is the refusal of a whole request by most nodes.
        isOne = body.lstrip()[:1] == b"{"
        found = [_answer.decode(body)] if isOne else _answers.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NoRpcAnswer(str(error)) from error
    isOne = isOne or len(found) == 1
    byId = {answer.id: answer for answer in found}
    refusal = next(
        (each for each in found if each.error and (isOne or each.id not in range(len(calls)))), None
    )
    answers = []
    for index, call in enumerate(calls):
        answer = byId.get(index, refusal)
        if answer is None:
            raise NoRpcAnswer(f"there is no answer to {call.method}")
        answers.append(answer)
    return answers


@asDeferred
async def postJson(
    client: HttpClient, url: str, body: bytes, timeout: float, maxAnswer: int
) -> bytes:
    """
    Make a request.

    @param timeout: how long it may take, in seconds.
    @param maxAnswer: the most bytes that the answer may have.
    @return: fires with the answer's body, whatever its status: nodes explain themselves there.
        Cancelling ends the request.
    @raise HttpError: there is no answer, or it is too large.
    """
    answer = await client.request(
        *("POST", url), headers=_HEADERS, data=body, timeout=timeout, maxBody=maxAnswer
    )
    return await readBody(answer)
