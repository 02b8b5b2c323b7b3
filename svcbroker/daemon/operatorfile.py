"""
The file in the data directory that says where a daemon is reached and what proves an operator.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from ..files import newFile
from .operating import OPERATOR_NAME, OperatorFileError
from .ports import TLS_TYPES

TOKEN_SIZE: Final = 32
"""The number of unguessable bytes that prove an operator."""


def operatorUrl(address: str, basePath: str, endpoint: str) -> str:
    """
    The URL where this machine reaches HTTP, so that the other end sees a loopback address.

    @param address: where HTTP is listened on, C{host:port}.
    @param endpoint: the endpoint as the operator has written it.
    @return: the base address; empty where HTTP is on no loopback address.
    """
    host, _, port = address.rpartition(":")
    if host in {"[::]", "[::1]"}:
        host = "[::1]"
    elif host == "0.0.0.0":
        host = "127.0.0.1"
    elif not host.startswith("127."):
        return ""
    return f"{_schemeOf(endpoint)}://{host}:{port}{basePath}"


def consoleUrl(address: str, basePath: str, endpoint: str) -> str:
    """
    The URL of the console, for people at this machine; empty where HTTP has no address of its own.
    For the parameters see L{operatorUrl}.
    """
    if ":" not in address:
        return ""
    base = operatorUrl(address, basePath, endpoint)
    return f"{base or f'{_schemeOf(endpoint)}://{address}{basePath}'}/console"


def _schemeOf(endpoint: str) -> str:
    return "https" if endpoint.partition(":")[0] in TLS_TYPES else "http"


class OperatorFile:
    """
    The file as a daemon keeps it while it runs and holds the data directory.

    @ivar token: what an operator has to show.
    """

    _log = Logger()

    def __init__(self, directory: Path, url: str, entropy: Callable[[int], bytes]) -> None:
        """
        @param directory: the data directory.
        @param url: the base address; empty where there is none.
        @param entropy: makes the token.
        """
        self.token = entropy(TOKEN_SIZE).hex()
        self._path = directory / OPERATOR_NAME
        self._url = url
        self._isWritten = False

    def start(self) -> Deferred[None]:
        """
        Write the file whole, for its owner only, in the place of an older one. The port is bound
        by now: who reads the file at once waits at most a moment.

        @raise OperatorFileError: it cannot be written.
        """
        made = self._path.with_name(OPERATOR_NAME + ".new")
        try:
            # One that a crash has left might have other rights.
            for path in (made, self._path):
                path.unlink(missing_ok=True)
            if not self._url:
                self._log.info("There is no operator.json: HTTP is on no loopback address")
                return succeed(None)
            with newFile(made) as file:
                file.write(json.dumps({"url": self._url, "token": self.token}).encode("utf-8"))
            made.replace(self._path)
            self._isWritten = True
        except OSError as error:
            raise OperatorFileError(
                f"data-dir: cannot write {self._path}: {error.strerror}"
            ) from error
        return succeed(None)

    def drain(self) -> Deferred[None]:
        """Remove the file, if it was written."""
        if self._isWritten:
            self._path.unlink(missing_ok=True)
        return succeed(None)
