"""
Cosigning: the witnesses of a log, which are asked from time to time to cosign its checkpoints
(c2sp.org/tlog-witness).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, Protocol

import msgspec
from attrs import frozen
from msgspec import Struct
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger

from ...chain import Malformed
from ...errors import BrokerError
from ...net.deferreds import asDeferred, cancelAll
from ...proofs.tlog import AddCheckpoint, Note, NoteSignature, Party, Policy, SignatureRefused
from .._metadatastore import MetadataStore
from ._transparencylog import LOG, CosignedCheckpoints, LogCheckpoint, TransparencyLog

WITNESS: Final = f"{LOG}-witness"
"""The kind of what is kept of a witness. Its name is C{GROUP/VKEY}."""

FIRST_DELAY: Final = 2.0
MAX_DELAY: Final = 600.0
"""After how many seconds a witness that has failed is asked again: the time doubles with each
failure, and up to half of it is taken off by chance."""
SHOUT_PERIOD: Final = 3600.0
"""Every how many seconds a refusal that lasts is logged again."""
MAX_REASON: Final = 200
"""The length of the part of a witness's reason that is shown, in characters."""
_WHY: Final = (
    "The chain is not the one that this witness has seen: it was restored from an older backup and "
    "has gone on, or its history was changed"
)
_WHY_EXECUTING: Final = (
    "This witness has executed the chain: a block of it is wrong, or it is not the one that was "
    "cosigned"
)
_AHEAD_TIMES: Final = 3
"""The number of times that a witness has to be ahead of this log before that counts as a refusal:
where several brokers have one chain, it is ahead for a moment."""


class _KeptWitness(Struct, frozen=True):
    """A witness as it is kept: the size that it cosigned last, and when."""

    size: int
    time: int


class WitnessFailed(Exception):
    """A witness has not cosigned. The text is the end of a sentence that begins with it."""


class IWitnessClient(Protocol):
    """A client that makes requests to witnesses: L{svcbroker.broker.transparency.feature}."""

    def addCheckpoint(self, url: str, body: bytes) -> Deferred[tuple[int, bytes]]:
        """
        Post a request.

        @param url: the submission prefix of the witness.
        @param body: an L{AddCheckpoint<svcbroker.proofs.tlog.AddCheckpoint>}.
        @return: the status and the body of the answer, which are bounded in size and time.
        @raise WitnessFailed: there is no answer.
        """


class LogRefusedByWitness(WitnessFailed):
    """A witness says that the log has not grown from what it cosigned before."""


class _Conflict(Exception):
    """
    A witness has cosigned another size last.

    @ivar size: that size.
    """

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class LogWitness:
    """
    One witness of the log of one group.

    @ivar party: the witness as the policy has it.
    @ivar size: the size that it has cosigned last; 0 for none.
    @ivar time: when that was, by its clock, in seconds since the epoch; 0 for never.
    @ivar lastError: why it has not cosigned since; empty where it has.
    @ivar refusals: how often it has refused the log as one that has not only grown.
    @ivar isRefusing: whether it has cosigned nothing since it refused.
    @ivar failures: how often it has failed since it has cosigned last.
    """

    _log = Logger()

    def __init__(
        self,
        party: Party,
        log: TransparencyLog,
        client: IWitnessClient,
        store: MetadataStore,
        seconds: Callable[[], float],
    ) -> None:
        """
        @param seconds: a monotonic clock.
        """
        self.party = party
        self.lastError = ""
        self.refusals = 0
        self.isRefusing = False
        self.failures = 0
        self._witnessed = log
        self._client = client
        self._store = store
        self._seconds = seconds
        self._shoutedAt = float("-inf")
        self._name = f"{log.group}/{party.key.text}"
        kept = store.get(WITNESS, self._name)
        known = _KeptWitness(0, 0) if kept is None else msgspec.json.decode(kept, type=_KeptWitness)
        self.size, self.time = known.size, known.time

    def delay(self, random: Callable[[], float]) -> float:
        """
        After how many seconds it is asked again.

        @param random: gives a number of [0, 1).
        """
        longest: float = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(self.failures - 1, 30))
        return longest * (1 - random() / 2)

    async def ask(self, checkpoint: LogCheckpoint) -> NoteSignature | None:
        """
        Ask for a cosignature. Where the witness has cosigned another size last than is known here,
        it is asked once more, from that size.

        @return: the cosignature, verified; C{None} where there is none: L{lastError} says why.
        @raise svcbroker.errors.BrokerError: the log cannot be read.
        """
        size = checkpoint.head.size
        try:
            try:
                cosignature = await self._ask(checkpoint, min(self.size, size))
            except _Conflict as conflict:
                if conflict.size > size:
                    raise self._ahead(conflict.size, size) from None
                self.size = conflict.size
                try:
                    cosignature = await self._ask(checkpoint, conflict.size)
                except _Conflict:
                    raise WitnessFailed("changes its mind about the size that it knows") from None
        except WitnessFailed as error:
            self._failed(error)
            return None
        self.size, self.time = size, self.party.key.timeOf(cosignature)
        self._store.put(
            WITNESS, self._name, msgspec.json.encode(_KeptWitness(size=self.size, time=self.time))
        )
        if self.isRefusing:
            self._log.warn(
                "witness {name} cosigns the log of group {group} again",
                name=self.party.name,
                group=self._witnessed.group,
            )
        self.failures, self.lastError, self.isRefusing = 0, "", False
        return cosignature

    async def _ask(self, checkpoint: LogCheckpoint, older: int) -> NoteSignature:
        """
        Make one request.

        @param older: the size that the witness has cosigned last.
        @raise WitnessFailed: it has not cosigned.
        @raise _Conflict: it knows another size.
        """
        proof = await self._witnessed.growth(older, checkpoint.head.size)
        body = AddCheckpoint(older=older, proof=tuple(proof), checkpoint=checkpoint.note).encode()
        status, answer = await self._client.addCheckpoint(self.party.url, body)
        text = answer.decode("utf-8", "replace")
        if status != HTTPStatus.OK:
            raise self._refusal(status, text)
        try:
            note = Note.decode((checkpoint.note.text + "\n" + text).encode())
            verified = note.verified([self.party.key])
        except (Malformed, SignatureRefused) as error:
            raise WitnessFailed(f"answered with what is no cosignature: {error}") from None
        for key, signature in verified:
            if 0 < key.timeOf(signature) < 2**63:
                return signature
        raise WitnessFailed("answered without a cosignature of its key")

    def _refusal(self, status: int, text: str) -> Exception:
        """The meaning of an answer without a cosignature."""
        if status == HTTPStatus.CONFLICT:
            size = text.strip()
            if size.isascii() and size.isdigit() and len(size) < 19:
                return _Conflict(int(size))
        first = "".join(each for each in text.partition("\n")[0] if each.isprintable())
        reason = f"answered {status}: {first[:MAX_REASON]}"
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            return LogRefusedByWitness(reason)
        return WitnessFailed(reason)

    def _ahead(self, known: int, size: int) -> WitnessFailed:
        reason = f"has cosigned size {known}, and this log has size {size}"
        isLasting = self.failures + 1 >= _AHEAD_TIMES
        return LogRefusedByWitness(reason) if isLasting else WitnessFailed(reason)

    def _failed(self, error: WitnessFailed) -> None:
        reason = str(error)
        isNew = not self.lastError
        self.failures += 1
        self.lastError = reason
        isRefusal = isinstance(error, LogRefusedByWitness)
        if isRefusal:
            self.refusals += 1
            now = self._seconds()
            if not (self.isRefusing and 0 <= now - self._shoutedAt < SHOUT_PERIOD):
                self._shoutedAt = now
                self._log.error(
                    "WITNESS {name} REFUSES THE LOG of group {group}: it {reason}. {why}. Compare "
                    "it with the other replicas and backups: svcbroker chain audit, "
                    "svcbroker proof contradict",
                    name=self.party.name,
                    why=_WHY_EXECUTING if self.party.key.isExecuting else _WHY,
                    group=self._witnessed.group,
                    reason=reason,
                )
        elif isNew:
            self._log.warn(
                "witness {name} has not cosigned the log of group {group}, it is asked again: it "
                "{reason}",
                name=self.party.name,
                group=self._witnessed.group,
                reason=reason,
            )
        self.isRefusing = self.isRefusing or isRefusal


POLL: Final = 1.0
"""Every how many seconds is looked whether the log has grown."""
RETRY: Final = 30.0
"""After how many seconds a log that cannot be read or signed is tried again."""


@frozen(kw_only=True)
class WitnessingRule:
    """
    The times at which witnesses are asked.

    @ivar interval: after how many seconds a log that has grown is cosigned again.
    @ivar blocks: after how many blocks it is cosigned even before that.
    """

    interval: float = 60.0
    blocks: int = 1000


class Witnessing:
    """
    Has witnesses cosign the log of a group. Each witness is asked by a job of its own, so one that
    hangs or is away holds up no other; and nothing else in the broker waits for any.

    @ivar log: the log.
    @ivar witnesses: the witnesses.
    @ivar cosigned: the checkpoints that a quorum has cosigned.
    @ivar newest: the checkpoint that witnesses are asked to cosign; C{None} before the first one.
    """

    _log = Logger()

    def __init__(
        self,
        log: TransparencyLog,
        cosigned: CosignedCheckpoints,
        client: IWitnessClient,
        store: MetadataStore,
        reactor: IReactorTime,
        now: Callable[[], float],
        random: Callable[[], float],
        rule: WitnessingRule,
    ) -> None:
        """
        @param client: makes the requests.
        @param now: the wall clock: seconds since the epoch.
        @param random: gives a number of [0, 1).
        """
        self.log = log
        self.cosigned = cosigned
        self.newest: LogCheckpoint | None = None
        self.witnesses: Sequence[LogWitness] = [
            LogWitness(party, log, client, store, reactor.seconds)
            for party in cosigned.policy.witnesses.values()
        ]
        self._reactor = reactor
        self._now = now
        self._random = random
        self._rule = rule
        self._waiting: list[Deferred[None]] = []
        self._running: list[Deferred[None]] = []

    def start(self) -> Deferred[None]:
        """Begin. The ledger has started. The start of the broker does not wait for it."""
        self._running = [self._propose(), *map(self._ask, self.witnesses)]
        return succeed(None)

    def stop(self) -> Deferred[None]:
        """End. Requests under way are given up."""
        cancelAll(self._running)
        return succeed(None)

    @asDeferred
    async def _propose(self) -> None:
        """Sign checkpoints for the witnesses when it is time."""
        proposedAt, hasFailed = float("-inf"), False
        while True:
            delay = POLL
            try:
                if await self._isDue(proposedAt):
                    checkpoint = await self.log.sign()
                    proposedAt = self._reactor.seconds()
                    self.newest = checkpoint
                    self.cosigned.propose(checkpoint)
                    waiting, self._waiting = self._waiting, []
                    for each in waiting:
                        each.callback(None)
                hasFailed = False
            except CancelledError:
                raise
            except BrokerError as error:
                if not hasFailed:
                    self._log.error(
                        "the log of group {group} cannot be signed, it is tried again: {reason}",
                        group=self.log.group,
                        reason=error.message,
                    )
                hasFailed, delay = True, RETRY
            except Exception:
                self._log.failure("the log of group {group}", group=self.log.group)
                delay = RETRY
            await deferLater(self._reactor, delay)

    async def _isDue(self, proposedAt: float) -> bool:
        """Whether the log has grown, and it is time to have that cosigned."""
        newest = self.newest
        if newest is None:
            await self._checkKept()
            newest = self.cosigned.newest
            return newest is None or await self.log.size() > newest.head.size
        grown = await self.log.size() - newest.head.size
        isLate = self._reactor.seconds() - proposedAt >= self._rule.interval
        return grown >= self._rule.blocks or (grown > 0 and isLate)

    async def _checkKept(self) -> None:
        """Check that what was cosigned before is still of the chain."""
        size, newest = await self.log.size(), self.cosigned.newest
        while newest is not None:
            head = newest.head
            if head.size <= size:
                now = await self.log.head(head.origin, head.size)
                if now.root == head.root:
                    return
            self._log.error(
                "THE CHAIN of group {group} IS NOT the one that witnesses have cosigned at size "
                "{cosigned}: it was restored from an older backup, or changed. It has size {size} "
                "now. The cosigned checkpoint is kept as evidence, and not served",
                group=self.log.group,
                cosigned=head.size,
                size=size,
            )
            self.cosigned.setAside(head.size)
            newest = self.cosigned.newest

    @asDeferred
    async def _ask(self, witness: LogWitness) -> None:
        """Ask one witness for what it has not cosigned yet."""
        asked: LogCheckpoint | None = None
        while True:
            checkpoint = self.newest
            if checkpoint is None or checkpoint is asked:
                changed: Deferred[None] = Deferred()
                self._waiting.append(changed)
                await changed
                continue
            try:
                cosignature = await witness.ask(checkpoint)
            except CancelledError:
                raise
            except BrokerError:
                # That is logged by what signs the log.
                await deferLater(self._reactor, RETRY)
                continue
            except Exception:
                self._log.failure("witness {name}", name=witness.party.name)
                await deferLater(self._reactor, RETRY)
                continue
            if cosignature is None:
                await deferLater(self._reactor, witness.delay(self._random))
            else:
                asked = checkpoint
                self.cosigned.add(checkpoint.head.size, cosignature, self._now())


def checkWitnesses(policy: Policy) -> None:
    """
    Check that the witnesses of a policy can be asked.

    @raise ValueError: they cannot.
    """
    if not policy.witnesses:
        raise ValueError("names no witness")
    for each in policy.witnesses.values():
        if not each.url.startswith(("http://", "https://")) or not each.url.isascii():
            raise ValueError(f"has no URL for the witness {each.name}")
