"""
Opening a stored chain to read it, also while a broker runs on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..chain import Genesis, Malformed
from ..storage import Snapshot, StorageDamaged
from ._layout import STORE_NAME, isGroup
from ._prover import Prover


def groupDirectory(directory: Path, group: str) -> Path:
    """
    The directory of a group's chain.

    @param directory: a data directory, or the group's own.
    """
    return directory if isGroup(directory) else directory / group


@contextmanager
def readChain(directory: Path) -> Iterator[Prover]:
    """
    Open the chain in a group's directory for as long as the context lasts. Nothing is written.

    What is read is taken as it is: L{audit<svcbroker.archive.audit>} says whether it is good.

    @raise StorageError: it cannot be read.
    """
    path = directory / STORE_NAME
    with Snapshot.ofLedger(path) as snapshot:
        rows = list(snapshot.rows("SELECT chain_id, genesis FROM chain"))
        try:
            genesis = Genesis.decode(rows[0][1])
            if genesis.chain != rows[0][0]:
                raise Malformed("its genesis is not the one it was made with")
        except (Malformed, LookupError, TypeError) as error:
            raise StorageDamaged(f"{path} is damaged ({error}): restore it from a backup") from None
        yield Prover(genesis, snapshot.reader())
