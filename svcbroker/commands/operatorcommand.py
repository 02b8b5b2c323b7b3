"""
Commands that make operator calls of a running daemon.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import click

from ..daemon.operating import Operating, OperatorFileError, readOperatorFile
from ..errors import NoSuchCall, NotAuthenticated, NotAuthorized
from .arguments import UNEXPECTED
from .clientcommand import DATA_DIR, TOKEN, chosenBroker, connectedCommand, noBroker, settingsOf
from .terminal import CommandError, Exit, readLine

if TYPE_CHECKING:
    import httpx


MAX_ANSWER: Final = 16 * 1024 * 1024
"""The longest answer that is read, in bytes."""

_PAGE: Final = 1000
"""The number of records of a page that is asked for."""

_DAEMON: Final = f"{__name__}.daemon"
"""The key of click's context under which a daemon is that stands before the other arguments."""

_NOT_ALLOWED: Final = (NotAuthenticated.code, NotAuthorized.code)

_CREDENTIALS: Final = ("user", "password_file", "token_file", "ca", "cert", "cert_key")


def isDaemon(word: str) -> bool:
    """Whether an argument names a daemon: a URL, or a data directory."""
    return "/" in word or Path(word).is_dir()


def takeDaemon(context: click.Context, words: tuple[str, ...]) -> tuple[str, ...]:
    """
    Take the daemon that stands before other arguments, if one does.

    @return: the other arguments.
    """
    if words and isDaemon(words[0]):
        context.meta[_DAEMON] = words[0]
        return words[1:]
    return words


def _keepDaemon(context: click.Context, parameter: Any, words: tuple[str, ...]) -> None:
    if len(words) > 1:
        raise click.UsageError(UNEXPECTED, context)
    if words:
        context.meta[_DAEMON] = words[0]


DAEMON: Final = click.argument(
    "daemon", metavar="", nargs=-1, expose_value=False, callback=_keepDaemon
)
"""An argument that names the daemon, as earlier releases took it. No help text shows it."""


def listRecords(daemon: Daemon, name: str, key: str, **parameters: object) -> Iterator[Any]:
    """
    The records of a group that an operator call lists, page by page.

    @param name: the call's path below C{/admin/operator/}.
    @param key: the member of its answers that has the records.
    @raise CommandError: there is no daemon, or it refuses.
    """
    after: str | None = ""
    while after is not None:
        page = daemon.call(name, groupId=daemon.group, after=after, limit=_PAGE, **parameters)
        yield from page[key]
        after = page.get("next")


def operatorCommand(summary: str) -> Callable[[Callable[..., int | None]], click.Command]:
    """
    Make a command of a function that is called with the console, a L{Daemon} and the parameters of
    the command, and returns the exit code, or nothing for success.

    @param summary: the help text.
    """

    def connect(given: Mapping[str, Any]) -> AbstractContextManager[Daemon]:
        return operated(given, os.environ, click.get_current_context().meta.get(_DAEMON))

    return connectedCommand(summary, connect)


class Daemon:
    """
    Makes operator calls and admin queries. The daemon is looked for when the first one is made, so
    that a command checks its arguments before.

    @ivar group: the group that is meant; C{None} for the daemon's default.
    """

    def __init__(
        self,
        find: Callable[[], tuple[str, httpx.Client]],
        timeout: float,
        group: str | None = None,
    ) -> None:
        """
        @param find: finds the daemon's base address, and a client that has the credentials.
        @param timeout: how many seconds a call may take.
        """
        self._find = find
        self._found: tuple[str, httpx.Client] | None = None
        self._timeout = timeout
        self.group = group

    @property
    def url(self) -> str:
        """
        The daemon's base address.

        @raise CommandError: there is no daemon.
        """
        return self._connected()[0]

    def _connected(self) -> tuple[str, httpx.Client]:
        if self._found is None:
            self._found = self._find()
        return self._found

    def call(self, name: str, **parameters: object) -> Any:
        """
        Make an operator call.

        @param name: its path below C{/admin/operator/}.
        @param parameters: its parameters; those that are C{None} are left out.
        @return: the data of its answer.
        @raise CommandError: there is no daemon, or it refuses.
        """
        given = {key: value for key, value in parameters.items() if value is not None}
        return self._data("POST", f"admin/operator/{name}", json.dumps(given).encode())

    def query(self, path: str, **parameters: str) -> Any:
        """
        Make an admin query.

        @param path: its path below the base address.
        @return: the data of its answer.
        @raise CommandError: there is no daemon, or it refuses.
        """
        return self._data("GET", f"{path}?{urlencode(parameters)}")

    def metrics(self, url: str | None = None) -> str:
        """
        Get the daemon's metrics.

        @param url: where they are; by default at C{/metrics} of the daemon's port of HTTP.
        @raise CommandError: there is no daemon, or it refuses.
        """
        where = url or urlunsplit((*urlsplit(self.url)[:2], "/metrics", "", ""))
        status, body = self._request("GET", where)
        if status == 404:
            raise CommandError(f"there are no metrics at {where}: give their URL with --metrics")
        if status in (401, 403):
            raise CommandError(
                f"{where} needs an account that may read the metrics of all groups: give --url and "
                "--user",
                Exit.BAD,
            )
        if status != 200:
            raise CommandError(f"{where} answers with HTTP status {status}")
        return body.decode("utf-8", "replace")

    def _data(self, method: str, path: str, body: bytes | None = None) -> Any:
        url = self.url
        _, body = self._request(method, f"{url}/{path}", body)
        try:
            answer = json.loads(body)
            code, message, data = answer["code"], str(answer["message"]), answer.get("data")
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise CommandError(noBroker(url)) from None
        if code == NoSuchCall.code and (hint := noBroker(url)).endswith("?"):
            raise CommandError(hint)
        if code != 0:
            hint = ""
            if code in _NOT_ALLOWED:
                hint = "; an operator gives --data-dir on the daemon's machine, or --user"
            raise CommandError(f"the daemon refused: {message}{hint}", Exit.BAD)
        return data

    def _request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        import httpx

        from ..client._httpx import failureOf

        url, http = self._connected()
        headers = {"Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            with http.stream(
                method, target, content=body, headers=headers, timeout=self._timeout
            ) as response:
                answer = b""
                for piece in response.iter_raw():
                    answer += piece
                    if len(answer) > MAX_ANSWER:
                        raise CommandError(
                            f"the daemon at {url} answered more than {MAX_ANSWER} bytes"
                        )
                return response.status_code, answer
        except httpx.TransportError as error:
            failure = failureOf(error)
            if failure.isFinal:
                raise CommandError(f"{failure.message}, at {url}") from None
            if not failure.isSent:
                raise CommandError(
                    f"no daemon answers at {url}: it is not up yet, or was killed; svcbroker run "
                    "starts one"
                ) from None
            if isinstance(error, httpx.TimeoutException):
                raise CommandError(
                    f"the daemon gave no answer in {self._timeout:g} seconds"
                ) from None
            raise CommandError(
                f"the daemon at {url} closed the connection before it had answered"
            ) from None


@contextmanager
def operated(
    given: Mapping[str, Any],
    environment: Mapping[str, str],
    word: str | None,
    *,
    isAnonymous: bool = False,
) -> Iterator[Daemon]:
    """
    The daemon that a command asks, for as long as the context lasts: that of a data directory on
    this machine, or one at a URL, as an account.

    @param given: the options of the command line.
    @param word: the argument that names it, if there is one.
    @param isAnonymous: whether one at a URL needs no credentials.
    """
    import httpx

    with ExitStack() as stack:

        def find() -> tuple[str, httpx.Client]:
            url, headers, context = operatingOf(given, environment, word, isAnonymous=isAnonymous)
            # A proxy would be asked for its own loopback address.
            http = httpx.Client(
                headers=headers,
                verify=context or anyCertificate(),
                trust_env=context is not None,
            )
            return url, stack.enter_context(http)

        yield Daemon(find, given["timeout"], given["group"])


def anyCertificate() -> ssl.SSLContext:
    """
    A context of TLS that takes any certificate: the name in that of a daemon on this machine is
    one for other machines, and the connection leaves this one as little as a plain one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def operatingOf(
    given: Mapping[str, Any],
    environment: Mapping[str, str],
    word: str | None,
    *,
    isAnonymous: bool = False,
) -> tuple[str, Mapping[str, str], ssl.SSLContext | None]:
    """
    The URL of the daemon, the headers of requests, and the context of TLS: C{None} for a daemon on
    this machine.

    @raise CommandError: no daemon runs on the data directory, or there are no credentials.
    """
    from ..client._httpx import makeContext
    from ..client._requests import authorization, checkUrl

    if word is not None and "://" in word:
        given = {**given, "url": (*given["url"], word)}
    elif word is not None and given["data_dir"] is None:
        given = {**given, "data_dir": Path(word)}
    broker = chosenBroker(given, environment)
    if broker is None:
        try:
            broker = readOperatorFile(DATA_DIR)
        except OperatorFileError as error:
            raise CommandError(f"{error}; give --data-dir, or --url and --user") from None
    if isinstance(broker, Operating):
        if any(given[name] is not None for name in _CREDENTIALS):
            raise CommandError("credentials need the daemon's URL instead of its data directory")
        return broker.url, authorization(None, None, broker.token), None
    urls, kept = broker
    if len(urls) > 1:
        raise CommandError("an operator's command is for one daemon: give one --url")
    options = settingsOf(given, kept, environment, readLine)
    try:
        credentials = authorization(
            options.get("user"), options.get("password"), options.get("token")
        )
        url = checkUrl(urls[0])
        context = makeContext(
            {name: options[name] for name in ("ca", "certificate", "certificateKey")},  # type: ignore[arg-type]
            [url],
        )
    except ValueError as error:
        raise CommandError(str(error)) from None
    if not (credentials or isAnonymous) and options["certificate"] is None:
        raise CommandError(
            f"an operator at a URL needs --user, or a token in {TOKEN}; one on the daemon's "
            "machine gives --data-dir instead"
        )
    return url, credentials, context
