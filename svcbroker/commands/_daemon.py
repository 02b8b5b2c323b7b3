"""
Asking a running daemon for an operator call.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from OpenSSL import SSL
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.ssl import CertificateOptions
from twisted.internet.task import react
from twisted.python import usage
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

from ..daemon.operatorfile import Operating, OperatorFileError, readOperatorFile
from ..daemon.settings import Seconds
from ..net.http import HttpClient, HttpError, Problem, makeClient
from ._command import CommandError, Exit, readLine
from ._connection import PASSWORD, TOKEN
from ._options import CommandOptions

T = TypeVar("T")

MAX_ANSWER: Final = 16 * 1024 * 1024
"""The longest answer that is read, in bytes."""


class DaemonOptions(CommandOptions):
    """
    Options of a command that asks a running daemon: that of a data directory on this machine, or
    one at a URL, as an account.
    """

    optParameters: list[list[Any]] = [
        ["group", None, None, "The group that is meant. [default: 1]"],
        ["timeout", None, "30", "How many seconds the daemon may take."],
        [
            *("account", None, None),
            "The account that asks. Instead of DATA-DIR stands the daemon's base URL then. The "
            f"password is in {PASSWORD}, or is asked for.",
        ],
    ]

    def setDaemon(self, text: str) -> None:
        """
        Remember which daemon is asked. Called by C{parseArgs}.

        @param text: a data directory, or a base URL.
        """
        isURL = text.startswith(("http://", "https://"))
        self["url"] = text.rstrip("/") if isURL else ""
        self["data-dir"] = Path() if isURL else Path(text)
        if self["account"] is not None and not isURL:
            raise usage.UsageError("--account needs the daemon's URL instead of DATA-DIR")

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        try:
            self["timeout"] = Seconds(maximum=3600).parse(self["timeout"])
        except ValueError as error:
            raise usage.UsageError(f"--timeout: {error}") from None


class DaemonClient:
    """
    Makes operator calls.
    """

    def __init__(self, operating: Operating, client: HttpClient, timeout: float) -> None:
        """
        @param operating: where the daemon is, and the credentials.
        @param timeout: how many seconds a call may take.
        """
        self._operating = operating
        self._client = client
        self._timeout = timeout
        self._headers = Headers(
            {
                b"Content-Type": [b"application/json"],
                b"Authorization": [operating.authorization],
            }
        )

    async def call(self, name: str, **parameters: object) -> Any:
        """
        Make a call.

        @param name: its path below C{/admin/operator/}.
        @param parameters: its parameters; those that are C{None} are left out.
        @return: the data of its answer.
        @raise CommandError: there is no daemon, or it refuses.
        """
        url = self._operating.url
        given = {key: value for key, value in parameters.items() if value is not None}
        try:
            response = await self._client.request(
                b"POST",
                f"{url}/admin/operator/{name}",
                headers=self._headers,
                body=json.dumps(given).encode(),
                timeout=self._timeout,
            )
            body = await response.read(MAX_ANSWER)
        except HttpError as error:
            if error.problem is Problem.UNREACHABLE:
                raise CommandError(
                    f"no daemon answers at {url}: it has ended without telling, or is not up yet"
                ) from None
            if error.problem is Problem.TIMEOUT:
                raise CommandError(_noAnswer(self._timeout)) from None
            raise CommandError(f"the daemon at {url} {error}") from None
        try:
            answer = json.loads(body)
            code, message, data = answer["code"], str(answer["message"]), answer.get("data")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise CommandError(f"what answers at {url} is no svcbroker") from None
        if code != 0:
            raise CommandError(f"the daemon refused: {message}", Exit.BAD)
        return data


def _noAnswer(timeout: float) -> str:
    return f"the daemon gave no answer in {timeout:g} seconds"


def operatingOf(options: Mapping[str, Any], environment: Mapping[str, str]) -> Operating:
    """
    Where the daemon is, and the credentials.

    @raise CommandError: no daemon runs on the data directory, or there is no password.
    """
    url, account = options["url"], options["account"]
    if not url:
        try:
            return readOperatorFile(options["data-dir"])
        except OperatorFileError as error:
            raise CommandError(str(error)) from None
    if account is not None:
        password = environment.get(PASSWORD)
        if password is None:
            password = readLine(f"Password of {account}: ")
        return Operating.byPassword(url, account, password)
    token = environment.get(TOKEN)
    if token is None:
        raise CommandError(f"a daemon at a URL needs --account, or a token in {TOKEN}")
    return Operating.byToken(url, token)


def askDaemon(
    options: Mapping[str, Any], ask: Callable[[DaemonClient], Coroutine[Any, Any, T]]
) -> T:
    """
    Ask a running daemon. Runs the reactor, so it may be called once in a process.

    @param options: L{DaemonOptions}.
    @param ask: makes the calls.
    @return: what C{ask} answers.
    @raise CommandError: there is no daemon, it refuses, or it takes too long.
    """
    operating = operatingOf(options, os.environ)
    timeout = options["timeout"]
    # A certificate is for names by which other machines reach the daemon.
    tls = None if options["url"] else ThisMachine()
    answers: list[T] = []
    failures: list[Failure] = []

    def main(reactor: Any) -> Deferred[None]:
        client = DaemonClient(operating, makeClient(reactor, maxBody=MAX_ANSWER, tls=tls), timeout)
        # Before the connection is closed, which would look like the daemon's doing.
        reactor.addSystemEventTrigger("before", "shutdown", interrupt)
        asking = Deferred.fromCoroutine(ask(client))
        asking.addTimeout(timeout, reactor, lambda result, seconds: Failure(TimeoutError()))
        return asking.addCallbacks(answers.append, failures.append)

    def interrupt() -> None:
        if not (answers or failures):
            failures.append(Failure(KeyboardInterrupt()))

    # It always ends so; what came of it is known by then.
    with suppress(SystemExit):
        react(main)
    for failure in failures[:1]:
        if failure.check(TimeoutError):
            raise CommandError(_noAnswer(timeout))
        failure.raiseException()
    return answers[0]


@implementer(IPolicyForHTTPS)
class ThisMachine:
    """
    Takes any certificate: the name in it is one for other machines, and the connection leaves
    this one as little as a plain one.
    """

    def creatorForNetloc(self, hostname: bytes, port: int) -> IOpenSSLClientConnectionCreator:
        """See C{IPolicyForHTTPS}."""
        return _Creator()


@implementer(IOpenSSLClientConnectionCreator)
class _Creator:
    def clientConnectionForTLS(self, tlsProtocol: Any) -> SSL.Connection:
        return SSL.Connection(CertificateOptions().getContext(), None)
