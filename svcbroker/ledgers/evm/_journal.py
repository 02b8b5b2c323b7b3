"""
The journal of a broker's transactions on their way to the chain.

Each is on stable storage before it is sent for the first time: after a crash the same bytes are
sent again, and no nonce is left out.

A module of its own: every later version has to read these files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred

from ...archive import JOURNAL_NAME
from ...files import readFile
from ...storage import StorageDamaged, syncFile, writeFile
from ._ethereum import SignedTransaction, keccak256

_SUFFIX = ".tx"


class Journal:
    """
    The files of a journal: one for each nonce, with the bytes of the transaction.
    """

    def __init__(self, directory: Path, runInThread: Callable[..., Deferred[Any]]) -> None:
        """
        @param directory: the ledger's; it exists.
        """
        self._directory = directory / JOURNAL_NAME
        self._runInThread = runInThread

    def open(self) -> Sequence[SignedTransaction]:
        """
        Read what is there, by rising nonces. Blocks.

        @raise OSError: it cannot be read.
        @raise StorageDamaged: a file of it is none of a transaction.
        """
        if not self._directory.exists():
            self._directory.mkdir(mode=0o700)
            syncFile(self._directory.parent)
        found = []
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            try:
                nonce = int(path.name.removesuffix(_SUFFIX))
            except ValueError:
                raise StorageDamaged(f"{path} has no nonce for its name") from None
            raw = readFile(path)
            found.append(SignedTransaction(nonce=nonce, raw=raw, hash=keccak256(raw)))
        return sorted(found, key=lambda each: each.nonce)

    def write(self, transactions: Sequence[SignedTransaction]) -> Deferred[None]:
        """
        Write transactions, in place of any others with their nonces. Fires when they are on stable
        storage.
        """
        return self._runInThread(self._write, transactions)

    def _write(self, transactions: Sequence[SignedTransaction]) -> None:
        for each in transactions:
            writeFile(self._path(each.nonce), each.raw, 0o600)

    def forget(self, nonces: Sequence[int]) -> Deferred[None]:
        """Remove transactions that are in final blocks. A crash may leave some: harmless."""
        return self._runInThread(self._forget, nonces)

    def _forget(self, nonces: Sequence[int]) -> None:
        for nonce in nonces:
            self._path(nonce).unlink(missing_ok=True)

    def _path(self, nonce: int) -> Path:
        return self._directory / f"{nonce:020d}{_SUFFIX}"
