"""
The trees of statements of a witness that executes: each is made of the events of the copy, and what
checkpoints say of it is compared with it. It needs the extra C{scitt}.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from attrs import define
from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime

from ...archive import TREES_NAME
from ...carriers.scitt.statementtree import StatementTree
from ...chain import Malformed
from ...ledgers.copy import CopyLedger
from ...net.budgets import WorkBudget
from ...net.turns import Lock
from ...storage import TreeFile
from ..scitt import TreeLine
from ..tlog import CheckpointRefused, TreeHead

MAX_TREES: Final = 4
"""The most trees that a checkpoint may have, and of which are followed at a time."""


@define
class _Followed:
    """
    A tree that is followed.

    @ivar isRemade: whether it was made again since a checkpoint had this tree, so that what does
        not agree with it is not a damaged file.
    """

    tree: StatementTree
    isRemade: bool = False


class ExecutedStatements:
    """
    The trees of the statements in a copy. Each is made once a checkpoint has one of its topic, and
    again in each run, since nothing shows who has made a file that is there.
    """

    def __init__(
        self,
        copy: CopyLedger,
        directory: Path,
        clock: IReactorTime,
        run: Callable[..., Deferred[Any]],
    ) -> None:
        """
        @param directory: the directory of the copied group.
        @param run: runs a function in a thread, where it may take long.
        """
        self._copy = copy
        self._directory = directory
        self._clock = clock
        self._run = run
        self._work = WorkBudget(clock)
        self._lock = Lock()
        self._followed: OrderedDict[str, _Followed] = OrderedDict()

    async def stop(self) -> None:
        """Close the files. Who waits for a tree is told that it is not there."""
        while self._followed:
            await self._followed.popitem()[1].tree.stop()

    async def findFault(self, head: TreeHead, seconds: float) -> str:
        """
        Compare the trees in a checkpoint, whose blocks were executed, with the events in them.

        @param seconds: for how long it may wait for trees that are being made.
        @return: what is wrong, in words that follow "the log has signed"; empty where nothing is.
        @raise CheckpointRefused: a line is malformed, there are too many, or a tree is not there.
        @raise LedgerUnavailable: a tree cannot be read now.
        """
        lines, deadline = _linesOf(head), self._clock.seconds() + seconds
        # One checkpoint at a time, so that no tree is closed while it is read.
        async with self._lock:
            for line in lines:
                followed = await self._follow(line.topic)
                fault = await self._compare(followed.tree, line, head.size, deadline)
                if fault and not followed.isRemade:
                    # What is kept for ever does not rest on a file that may be damaged.
                    followed.isRemade = True
                    followed.tree.damaged()
                    fault = await self._compare(followed.tree, line, head.size, deadline)
                if fault:
                    return fault
                followed.isRemade = False
        return ""

    async def _follow(self, topic: str) -> _Followed:
        """The tree of a topic, which may still be in the making."""
        followed = self._followed.get(topic)
        if followed is None:
            while len(self._followed) >= MAX_TREES:
                await self._followed.popitem(last=False)[1].tree.stop()
            followed = self._followed[topic] = _Followed(self._makeTree(topic))
            await followed.tree.start()
        self._followed.move_to_end(topic)
        return followed

    def _makeTree(self, topic: str) -> StatementTree:
        owner = self._copy.chain + topic.encode()
        name = f"{sha256(topic.encode()).hexdigest()[:16]}.sqlite"

        def makeFile() -> TreeFile:
            file = TreeFile(self._directory / TREES_NAME / name, owner)
            file.discard()
            return file

        return StatementTree(
            *(self._copy, topic, makeFile, None, self._clock, self._run, self._run, self._work)
        )

    async def _compare(
        self, tree: StatementTree, line: TreeLine, size: int, deadline: float
    ) -> str:
        """
        Compare a tree with what a checkpoint says of it.

        @param size: that of the checkpoint.
        """
        topic = self._copy.topicState(line.topic)
        left = max(0.0, deadline - self._clock.seconds())
        try:
            reached = tree.reach(1 if topic is None else topic.height)
            await reached.addTimeout(left, self._clock)
        except TimeoutError:
            reason = tree.reason or "ask again"
            raise CheckpointRefused(
                503, f"this witness has not made the tree of {line.topic} yet: {reason}"
            ) from None
        what = f"a tree of {line.size} statements of {line.topic}"
        last = await tree.heightOf(line.size - 1) if line.size else 0
        if last is None:
            return f"{what}, of which its events make {tree.state.size}"
        if last >= size:
            return f"{what}, one of which is in block {last}, after those of the checkpoint"
        if await tree.rootAt(line.size) != line.root:
            return f"{what} that is not the tree that its events make"
        return ""


def _linesOf(head: TreeHead) -> Sequence[TreeLine]:
    """
    The trees in a checkpoint.

    @raise CheckpointRefused: a line is malformed, or there are too many.
    """
    try:
        lines = [each for each in map(TreeLine.parse, head.extensions) if each is not None]
    except Malformed as error:
        raise CheckpointRefused(400, f"the tree of statements in the checkpoint: {error}") from None
    if len(lines) > MAX_TREES:
        raise CheckpointRefused(
            400, f"the checkpoint has {len(lines)} trees of statements, and may have {MAX_TREES}"
        )
    return lines
