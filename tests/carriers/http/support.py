"""
HTTP over memory transports, through real channels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress
from twisted.internet.testing import StringTransport, StringTransportWithDisconnection
from twisted.python.failure import Failure

from svcbroker.access import Access
from svcbroker.carriers.http import BrokerSite, Route
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.net.budgets import Budgets
from svcbroker.operations import Incidents, Interface
from tests.access.support import openAccess
from tests.broker.support import Fixture, makeFixture

BASE = "/svcbroker"
FORM = "application/x-www-form-urlencoded"


@frozen
class Answer:
    """One HTTP answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


def parseAnswers(data: bytes, isHead: bool = False) -> list[Answer]:
    """Read every answer of a connection."""
    answers = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        length = 0 if isHead else int(headers.get("content-length", "0"))
        assert "transfer-encoding" not in headers
        answers.append(Answer(int(status.split()[1]), headers, data[:length]))
        data = data[length:]
    return answers


class Connection:
    """A client's end of a connection."""

    def __init__(
        self, site: BrokerSite, peer: IAddress | None = None, host: IAddress | None = None
    ) -> None:
        self.transport = StringTransportWithDisconnection(hostAddress=host, peerAddress=peer)
        self.channel = site.buildProtocol(None)
        assert self.channel is not None
        self.transport.protocol = self.channel
        self.channel.makeConnection(self.transport)

    @property
    def isOpen(self) -> bool:
        """Whether the server has not closed it."""
        return bool(self.transport.connected)

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.channel.dataReceived(data)

    def answers(self, isHead: bool = False) -> list[Answer]:
        """What has arrived since the last time."""
        data = self.transport.value()
        self.transport.clear()
        return parseAnswers(data, isHead)

    def disconnect(self) -> None:
        """Go away."""
        self.channel.connectionLost(Failure(ConnectionDone()))


def requestBytes(
    method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> bytes:
    """A request as it is sent."""
    given = {"Host": "broker", **(headers or {})}
    lines = [f"{method} {path} HTTP/1.1"]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    lines.extend(f"{name}: {value}" for name, value in given.items())
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


class CallConnection(StringTransport):
    """A connection that calls come by, without a carrier."""

    def __init__(self, budgets: Budgets) -> None:
        super().__init__()
        self.lane = budgets.work.lane()
        self.unsent = budgets.output.unsent("")


class Client:
    """
    Asks a site of a broker of two groups. The answers to C{ask} must be there at once.

    @cvar hasFastPath: whether its site has the fast path.
    """

    hasFastPath = True

    def __init__(
        self,
        settings: HttpSettings | None = None,
        routes: tuple[Route, ...] = (),
        fixture: Fixture | None = None,
        access: Access | None = None,
        dialects: Mapping[str, Interface] | None = None,
    ) -> None:
        self.fixture = makeFixture() if fixture is None else fixture
        self.site = makeSite(
            self.fixture.calls,
            HttpSettings() if settings is None else settings,
            openAccess(self.fixture.clock) if access is None else access,
            routes,
            Incidents(lambda: "incident-id"),
            hasFastPath=self.hasFastPath,
            dialects=dialects,
        )

    def connect(self) -> Connection:
        """Make a connection."""
        return Connection(self.site)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask on a new connection."""
        connection = self.connect()
        connection.send(requestBytes(method, path, body, headers))
        [answer] = connection.answers(isHead=method == "HEAD")
        return answer

    def rest(self, call: str) -> Any:
        """Ask C{/rest/...} by GET; what the JSON says."""
        return self._json(self.ask("GET", f"{BASE}/rest/{call}"))

    def admin(self, query: str) -> Any:
        """Ask C{/admin/...}; what the JSON says."""
        return self._json(self.ask("GET", f"{BASE}/admin/{query}"))

    def rpc(self, method: str, params: object = None, id: object = 1) -> Any:
        """Call by JSON-RPC; what the JSON says."""
        call = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return self._json(self.ask("POST", f"{BASE}/jsonrpc", json.dumps(call).encode()))

    def _json(self, answer: Answer) -> Any:
        assert answer.status == 200, answer
        assert answer.headers["content-type"] == "application/json;charset=UTF-8"
        return answer.json()
