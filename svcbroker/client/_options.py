"""
The options of the clients.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from ._signing import AuthorKey


class Options(TypedDict, total=False):
    """
    The options of all clients.

    @ivar user: the name of an account, with its C{password}.
    @ivar token: a token of an account, instead.
    @ivar ca: a PEM file with the authorities that may have signed the brokers' certificates; by
        default those of the system.
    @ivar certificate: a PEM file with the client's certificate.
    @ivar certificateKey: a PEM file with its key, if it is not in the same file.
    @ivar group: the id of the group; by default the broker's.
    @ivar timeout: how long a call may take with all its attempts, in seconds; by default 60.
    @ivar key: signs every event that is published: an author's key, or its PEM file.
    @ivar genesis: the genesis of the group's chain, or a file with it: then everything is verified.
    @ivar checkpoint: a checkpoint of the chain, C{HEIGHT:HASH}, that is trusted: likewise.
    @ivar checkpointFile: keeps the newest verified checkpoint, so that a fork is refused after a
        restart, too. Where it exists, neither of the others is needed.
    """

    user: str | None
    password: str | None
    token: str | None
    ca: str | Path | None
    certificate: str | Path | None
    certificateKey: str | Path | None
    group: str | None
    timeout: float
    key: AuthorKey | str | Path | None
    genesis: bytes | str | Path | None
    checkpoint: str | None
    checkpointFile: str | Path | None
