"""
An engine's RPC that answers what it is told to, behind an agent that needs no network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from attrs import define, field
from treq.testing import RequestTraversalAgent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from .support import recorded

Answer = Callable[[Mapping[str, Any]], Any]


class Refusal(Exception):
    """The error that the engine gives instead of a result."""


def recordedAnswers() -> dict[str, Answer]:
    """The answers of the recorded network, whatever the parameters."""
    names = {
        "block": "block_height_3",
        "commit": "commit_height_3",
    }
    for name in (
        "dump_consensus_state",
        "net_info",
        "status",
        "validators",
    ):
        names[name] = name
    return {method: partial(_answerRecorded, name) for method, name in names.items()}


def _answerRecorded(name: str, parameters: Mapping[str, Any]) -> Any:
    return recorded(name)


@define(eq=False)
class FakeEngine(Resource):
    """
    Answers JSON-RPC as the engine does.

    @ivar answers: by method, what makes the result of the parameters.
    @ivar calls: the method and parameters of each call, in order.
    @ivar raw: where it is given, the answer to everything.
    @ivar status: the HTTP status of every answer.
    @ivar isSilent: whether it answers at all.
    """

    isLeaf = True

    answers: dict[str, Answer] = field(factory=recordedAnswers)
    calls: list[tuple[str, Any]] = field(factory=list)
    raw: bytes | None = None
    status: int = 200
    isSilent: bool = False

    def __attrs_post_init__(self) -> None:
        super().__init__()
        self.agent = RequestTraversalAgent(self)

    def render_POST(self, request: Request) -> Any:
        assert request.content is not None
        asked = json.loads(request.content.read())
        assert request.requestHeaders.getRawHeaders("content-type") == ["application/json"]
        batch = asked if isinstance(asked, list) else [asked]
        answers = [self._answer(each) for each in batch]
        if self.isSilent:
            return NOT_DONE_YET
        request.setResponseCode(self.status)
        if self.raw is not None:
            return self.raw
        # A batch of one is answered by a bare object.
        return json.dumps(answers if len(answers) > 1 else answers[0]).encode()

    def _answer(self, call: Mapping[str, Any]) -> Mapping[str, Any]:
        self.calls.append((call["method"], call["params"]))
        answer = {"jsonrpc": "2.0", "id": call["id"]}
        if self.raw is not None:
            return answer
        try:
            return answer | {"result": self.answers[call["method"]](call["params"])}
        except Refusal as refusal:
            error = {"code": -32603, "message": "Internal error", "data": str(refusal)}
            return answer | {"error": error}

    def refuse(self, method: str, words: str) -> None:
        """Say no to a method from now on."""

        def answer(parameters: Mapping[str, Any]) -> Any:
            raise Refusal(words)

        self.answers[method] = answer
