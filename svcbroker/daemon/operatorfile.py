"""
The file in the data directory that says where a daemon is reached and what proves an operator.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import field, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from ..net.http import basicAuthorization
from .ports import TLS_TYPES

OPERATOR_NAME: Final = "operator.json"
TOKEN_SIZE: Final = 32
"""How many unguessable bytes prove an operator."""

_MAX_SIZE = 64 * 1024


class OperatorFileError(Exception):
    """
    The file cannot be used. The text is one line for the operator.
    """


@frozen(kw_only=True)
class Operating:
    """
    How a daemon is operated.

    @ivar url: its base address, context path included.
    @ivar authorization: the value of the header C{Authorization}.
    """

    url: str
    authorization: bytes = field(repr=False)

    @classmethod
    def byToken(cls, url: str, token: str) -> Operating:
        """With a token: that of a running daemon, or that of an account."""
        return cls(url=url, authorization=b"Bearer " + token.encode("utf-8"))

    @classmethod
    def byPassword(cls, url: str, account: str, password: str) -> Operating:
        """As an account."""
        return cls(url=url, authorization=basicAuthorization(account, password))


def operatorUrl(address: str, basePath: str, endpoint: str) -> str:
    """
    Where this machine reaches HTTP, so that the other end sees a loopback address.

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
    scheme = "https" if endpoint.partition(":")[0] in TLS_TYPES else "http"
    return f"{scheme}://{host}:{port}{basePath}"


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
            descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                json.dump({"url": self._url, "token": self.token}, file)
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


def readOperatorFile(directory: Path) -> Operating:
    """
    How the daemon of a data directory is operated.

    @raise OperatorFileError: there is no such file, or it cannot be read.
    """
    path = directory / OPERATOR_NAME
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(_MAX_SIZE))
        return Operating.byToken(str(value["url"]), str(value["token"]))
    except FileNotFoundError:
        raise OperatorFileError(
            f"no daemon that can be operated runs on {directory}: it has no {OPERATOR_NAME}"
        ) from None
    except OSError as error:
        raise OperatorFileError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, RecursionError):
        raise OperatorFileError(f"{path} is not what a daemon has written") from None
