"""
What the door answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from attrs import frozen
from twisted.internet.defer import Deferred

from ....broker import Broker
from ....operations import OPERATIONS, Incidents
from ..jsonrpc import JSONRPC
from ..rest import RestCall
from ..textcalls import tie


@frozen
class HotCall:
    """
    A method and a path that the door answers.

    @ivar isPost: whether it is asked for by POST; otherwise by GET.
    @ivar path: exactly this path.
    @ivar answer: given query string, type of the body and body, the JSON text that answers;
        C{None} where nothing is to be said.
    """

    isPost: bool
    path: bytes
    answer: Callable[[bytes, bytes | None, bytes], Deferred[Any]]

    @property
    def method(self) -> bytes:
        """The method it is asked for by."""
        return b"POST" if self.isPost else b"GET"


def hotCalls(base: str, broker: Broker, incidents: Incidents) -> Mapping[bytes, HotCall]:
    """
    The operations over REST, and JSON-RPC, by what their request lines begin with.

    @param base: the path above them.
    """
    calls = [
        HotCall(isPost, f"{base}/rest/{name}".encode("ascii"), partial(rest.answer, isPost))
        for name, rest in _restCalls(broker, incidents)
        for isPost in (False, True)
    ]
    rpc = JSONRPC(broker, incidents)
    calls.append(
        HotCall(True, f"{base}/jsonrpc".encode("ascii"), lambda query, kind, body: rpc.answer(body))
    )
    return {call.method + b" " + call.path: call for call in calls}


def _restCalls(broker: Broker, incidents: Incidents) -> Iterator[tuple[str, RestCall]]:
    for name, call in tie(OPERATIONS, broker, incidents).items():
        yield name, RestCall(name, call)
