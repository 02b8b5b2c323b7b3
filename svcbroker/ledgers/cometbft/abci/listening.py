"""
The Unix socket that an engine connects to.
"""

from __future__ import annotations

import stat
from errno import EAGAIN
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort, IReactorUNIX

from .._home import MAX_SOCKET_PATH
from .server import AbciFactory


def listenUnix(reactor: IReactorUNIX, path: Path, factory: AbciFactory) -> IListeningPort:
    """
    Listen on a Unix socket that only this user can connect to.

    @param path: the socket's path. A socket that a killed process has left is removed.
    @raise ValueError: the path is too long, is no socket, or another process listens there.
    @raise OSError: the operating system refuses.
    """
    size = len(bytes(path))
    if size > MAX_SOCKET_PATH:
        raise ValueError(f"the path of a socket has at most {MAX_SOCKET_PATH} bytes, not {size}")
    if _isAlive(path):
        raise ValueError(f"another process listens on {path}: is it the broker of this engine?")
    removeSocket(path)
    try:
        return reactor.listenUNIX(str(path), factory, mode=0o600)
    except CannotListenError as error:
        raise OSError(f"cannot listen on {path}: {error.socketError}") from error


def _isAlive(path: Path) -> bool:
    """
    Whether a process listens on a socket. A lock would not tell: the directory is the engine's.
    """
    with socket(AF_UNIX, SOCK_STREAM) as probe:
        probe.setblocking(False)
        # A full backlog is EAGAIN, because the probe does not block.
        return probe.connect_ex(str(path)) in (0, EAGAIN)


def removeSocket(path: Path) -> None:
    """
    Remove a socket that a killed process has left, so that the path can be listened on again.

    @raise ValueError: the path is no socket.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ValueError(f"{path} is no socket")
    path.unlink()
