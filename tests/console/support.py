"""
The console on a site, asked as browsers ask.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.internet.address import IPv4Address
from twisted.trial.unittest import SynchronousTestCase

import svcbroker.console
from svcbroker.access import Access
from svcbroker.carriers.http import LogIns
from svcbroker.carriers.http.feature import makeSite
from svcbroker.carriers.http.logins import HttpSettings
from svcbroker.console import WebConsole
from tests.access.support import MANY, account, openAccess
from tests.broker.support import makeFixture
from tests.carriers.http.accounts import Accounts
from tests.carriers.http.support import BASE, Answer, Connection, requestBytes

VENDOR = Path(svcbroker.console.__file__).with_name("vendor")
"""The files that others have written."""

_ORIGIN = re.compile(
    rb"/\* (?P<package>[\w-]+) (?P<version>[\w.-]+), (?P<file>[\w./-]+);"
    rb" SHA-256 of what follows: (?P<hash>[0-9a-f]{64}) \*/\n"
)

CONSOLE = f"{BASE}/console"
OPERATOR_TOKEN = "0f" * 32
OWN = {"Origin": "http://broker"}
"""The header of requests that the page makes by POST."""


@frozen
class Origin:
    """
    The first line of a vendored file.

    @ivar package: the package of npm that it is from.
    @ivar version: the version of the package.
    @ivar file: its path in the package.
    @ivar hash: the SHA-256 of what follows.
    """

    package: str
    version: str
    file: str
    hash: str


def originOf(path: Path) -> tuple[Origin, bytes]:
    """The first line of a vendored file, and what follows."""
    data = path.read_bytes()
    found = _ORIGIN.match(data)
    assert found is not None, f"{path} does not begin with its origin"
    return Origin(**{k: v.decode() for k, v in found.groupdict().items()}), data[found.end() :]


class Entropy:
    """Bytes that are different each time."""

    def __init__(self) -> None:
        self._count = 0

    def __call__(self, size: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(size, "big")


class ConsoleTestCase(SynchronousTestCase):
    """
    A site with the console, and the accounts C{ann}, who may publish to the topic C{t} and read
    it; C{bob}, who may do nothing; and C{root}.

    @cvar peer: the address of the browser.
    """

    peer = "192.168.1.1"

    def make(
        self, *, isOpen: bool = False, anonymous: tuple[str, ...] | None = None, **given: Any
    ) -> None:
        """
        Begin.

        @param isOpen: whether there are no accounts.
        @param anonymous: the grants of clients without credentials.
        @param given: further arguments of L{Calls}.
        """
        self.fixture = makeFixture(hasFaults=True, **given)
        self.clock = clock = self.fixture.clock
        self.accounts = Accounts(
            account("ann", "publish 1 t", "subscribe 1 t"), account("bob"), account("root", "* * #")
        )
        self.access = openAccess(clock)
        if not isOpen:
            self.access = Access(
                [self.accounts],
                clock,
                clock.seconds,
                anonymous=None if anonymous is None else account("", *anonymous),
                limits=MANY,
            )
        self.addCleanup(self.access.stop)
        settings = HttpSettings()
        self.sessions = LogIns(clock, Entropy(), BASE)
        console = WebConsole(
            BASE, self.access, self.sessions, self.fixture.broker.groups, OPERATOR_TOKEN
        )
        self.site = makeSite(
            self.fixture.calls,
            settings,
            self.access,
            console.routes(),
            operatorToken=OPERATOR_TOKEN,
            sessions=self.sessions,
        )

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask on a new connection."""
        connection = Connection(self.site, peer=IPv4Address("TCP", self.peer, 50000))
        connection.send(requestBytes(method, path, body, headers))
        [answer] = connection.answers(isHead=method == "HEAD")
        return answer

    def logIn(self, name: str, password: str | None = None, **headers: str) -> Answer:
        """Send the form."""
        body = {"name": name, "password": name if password is None else password}
        given = {"Content-Type": "application/json", **OWN, **headers}
        return self.ask(f"{CONSOLE}/session", "POST", json.dumps(body).encode(), given)

    def cookieOf(self, answer: Answer) -> str:
        """The cookie that a browser sends from now on."""
        return answer.headers["set-cookie"].partition(";")[0]

    def cookie(self, name: str) -> str:
        """Log in; the cookie."""
        return self.cookieOf(self.logIn(name))

    def user(self, cookie: str = "") -> Any:
        """What the page is told of its user."""
        headers = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"} if cookie else {}
        return self.ask(f"{CONSOLE}/session", headers=headers).json()

    def operate(self, call: str, cookie: str, **headers: str) -> Answer:
        """An operator call that the page makes."""
        given = {"Cookie": cookie, "Content-Type": "application/json", **OWN, **headers}
        return self.ask(f"{BASE}/admin/operator/{call}", "POST", b"{}", given)

    def rest(self, call: str, cookie: str, **headers: str) -> Answer:
        """A call that the page makes by GET."""
        given = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin", **headers}
        return self.ask(f"{BASE}/rest/{call}", headers=given)
