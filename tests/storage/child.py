"""
The tasks that tests run in a process of their own: C{python -m tests.storage.child TASK PATH}.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

from msgspec.structs import replace

from svcbroker.storage import StorageFailed, Store
from tests.storage.chains import Chain, differences, newStore, seededChain

KILL_SEED = 21
KILL_BLOCKS = 2000


def appendUntilKilled(path: Path) -> None:
    """
    Append the rest of a known chain; say each height once it is stored.
    """
    chain = seededChain(KILL_SEED, KILL_BLOCKS, size=600)
    store = Store.open(path)
    tip = store.tip()
    for append in chain.appends[0 if tip is None else tip.height :]:
        store.append(append)
        sys.stdout.write(f"{append.block.height}\n")
        sys.stdout.flush()


def fileSizeLimit(path: Path) -> None:
    """
    Meet a limit on the size of files, which is an I/O error to SQLite, and get over it.
    """
    store = newStore(path)
    chain = Chain()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
    failure = appendUntilFailed(store, chain)
    check(not differences(store, chain, chain.height), "reads do not go on")
    for _ in range(3):
        append = chain.add([("a", bytes(500_000))])
        expectFailure(store, append)
        chain.drop()
    check(not differences(store, chain, chain.height), "reads do not go on")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    for _ in range(3):
        store.append(chain.add([("b", bytes(50_000))]))
    report(chain.height, failure)
    os.kill(os.getpid(), signal.SIGKILL)


def oneSyncFails(path: Path) -> None:
    """
    Fail the sync of a commit, then die.
    """
    store, chain, syncs = storeWithSyncs(path)
    syncs.value = 1
    failure = expectFailure(store, replace(chain.add([("a", b"never stored")]), senders=()))
    chain.drop()
    check(not differences(store, chain, chain.height), "the failed block is seen")
    report(chain.height, failure)
    os.kill(os.getpid(), signal.SIGKILL)


def allSyncsFail(path: Path) -> None:
    """
    Fail the sync of a commit and of all that could undo it; then let the disk get well, store
    another block in its place, and die.
    """
    store, chain, syncs = storeWithSyncs(path)
    syncs.value = 1000
    failure = expectFailure(store, chain.add([("a", b"not stored in the end")]))
    chain.drop()
    again = expectFailure(store, chain.add([("a", b"nor is this")]))
    chain.drop()
    check(again.isUncertain, "appended behind an uncertain end")
    check(not differences(store, chain, chain.height), "the failed block is seen")
    syncs.value = 0
    store.append(chain.add([("b", b"after")]))
    report(chain.height, failure)
    os.kill(os.getpid(), signal.SIGKILL)


def storeWithSyncs(path: Path) -> tuple[Store, Chain, ctypes.c_int]:
    """
    A store with ten blocks, and how many of the next syncs fail.
    """
    store = newStore(path)
    chain = seededChain(1, 10)
    for append in chain.appends:
        store.append(append)
    return store, chain, ctypes.c_int.in_dll(ctypes.CDLL(None), "failingSyncs")


def appendUntilFailed(store: Store, chain: Chain) -> StorageFailed:
    """
    Append blocks of 20 kB until the disk does not take one.
    """
    for _ in range(1000):
        append = chain.add([("a", b"%20000d" % chain.height)])
        try:
            store.append(append)
        except StorageFailed as failure:
            chain.drop()
            return failure
    raise AssertionError("the disk is not full")


def expectFailure(store: Store, append: object) -> StorageFailed:
    """
    Append what cannot be stored now.
    """
    try:
        store.append(append)  # type: ignore[arg-type]
    except StorageFailed as failure:
        return failure
    raise AssertionError("the disk took it")


def check(isTrue: bool, words: str) -> None:
    """
    End with an error where something is not so.
    """
    if not isTrue:
        raise AssertionError(words)


def report(height: int, failure: StorageFailed) -> None:
    """
    Tell the parent how it went.
    """
    sys.stdout.write(f"{height} {failure.isUncertain}\n")
    sys.stdout.flush()


TASKS = {
    task.__name__: task for task in (appendUntilKilled, fileSizeLimit, oneSyncFails, allSyncsFail)
}

if __name__ == "__main__":
    TASKS[sys.argv[1]](Path(sys.argv[2]))
