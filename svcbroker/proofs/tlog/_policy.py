"""
Policies: which logs and witnesses are trusted, and how many witnesses are enough
(c2sp.org/tlog-policy).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from attrs import field, frozen

from ...chain import Malformed
from ._note import Note, SignatureRefused, VerifierKey
from ._treehead import TreeHead

MAX_LINES: Final = 1000
"""No policy has more lines."""
NONE: Final = "none"
"""The quorum that no witness is needed for."""
_COUNT: Final = re.compile(r"[1-9][0-9]{0,3}")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_WORDS: Final = re.compile(r"[^ \t]+")


@frozen
class Party:
    """
    A log or a witness of a policy.

    @ivar name: what the policy calls it.
    @ivar key: its public key.
    @ivar url: where it is; empty where the policy does not say.
    """

    name: str
    key: VerifierKey
    url: str = ""


@frozen
class Group:
    """
    A group of witnesses, and of other groups.

    @ivar count: how many members are enough.
    @ivar members: their names.
    """

    count: int
    members: Sequence[str]


@frozen
class Cosignature:
    """
    A verified cosignature.

    @ivar witness: the name of the witness in the policy.
    @ivar time: the second in which it says to have seen the checkpoint, since the epoch.
    """

    witness: str
    time: int

    @property
    def until(self) -> int:
        """By when it has seen the checkpoint: the end of that second."""
        return self.time + 1


@frozen
class Witnessed:
    """
    A checkpoint that a policy accepts.

    @ivar head: what it says.
    @ivar log: the log that signed it.
    @ivar cosignatures: those of the policy's witnesses, earliest first.
    @ivar policy: that policy.
    """

    head: TreeHead
    log: Party
    cosignatures: Sequence[Cosignature]
    policy: Policy = field(repr=False)

    @property
    def executedBy(self) -> Sequence[str]:
        """
        The witnesses that have executed what they have cosigned, as the names of their keys say.
        """
        executing = self.policy.executing
        return [each.witness for each in self.cosignatures if each.witness in executing]


@frozen(kw_only=True)
class Policy:
    """
    Whom a verifier trusts.

    @ivar logs: the logs.
    @ivar witnesses: the witnesses by name.
    @ivar groups: the groups by name, each after its members.
    @ivar quorum: the name of the witness or group that has to have witnessed, or L{NONE}.
    """

    logs: Sequence[Party] = ()
    witnesses: Mapping[str, Party] = MappingProxyType({})
    groups: Mapping[str, Group] = MappingProxyType({})
    quorum: str = NONE

    @classmethod
    def parse(cls, data: bytes) -> Policy:
        """
        Read a policy file.

        @raise Malformed: it is none. The text names the line.
        """
        # Names are opaque bytes; so are they after this, and they are not changed by it.
        text = data.decode("utf-8", "surrogateescape")
        lines = text.split("\n")
        if len(lines) > MAX_LINES:
            raise Malformed(f"the policy has more than {MAX_LINES} lines")
        reader = _Reader()
        for number, line in enumerate(lines, 1):
            try:
                reader.read(line)
            except Malformed as error:
                raise Malformed(f"line {number}: {error}") from None
        if reader.quorum is None:
            raise Malformed("the policy has no quorum line")
        return cls(
            logs=reader.logs,
            witnesses=reader.witnesses,
            groups=reader.groups,
            quorum=reader.quorum,
        )

    @property
    def executing(self) -> Collection[str]:
        """The names of those witnesses that cosign only what they have executed."""
        return [name for name, each in self.witnesses.items() if each.key.isExecuting]

    def disjointQuorums(self) -> tuple[Sequence[str], Sequence[str]] | None:
        """
        Two quorums that have no witness in common, if there are any: honest witnesses can then make
        two histories of one log acceptable. Each witness and group is a member of one group only,
        so a group can be met twice where enough of its members can.
        """
        whole: dict[str, Sequence[str]] = {name: [name] for name in self.witnesses}
        split: dict[str, tuple[Sequence[str], Sequence[str]]] = {}
        for name, group in self.groups.items():
            twice = [each for each in group.members if each in split][: group.count]
            once = [each for each in group.members if each not in twice]
            needed = group.count - len(twice)
            whole[name] = _joined(whole[each] for each in group.members[: group.count])
            if 2 * needed <= len(once):
                sides = (once[:needed], once[needed : 2 * needed])
                one, other = (
                    _joined(
                        [
                            *(split[each][number] for each in twice),
                            *(whole[each] for each in side),
                        ]
                    )
                    for number, side in enumerate(sides)
                )
                split[name] = one, other
        return split.get(self.quorum)

    @property
    def warning(self) -> str:
        """A sentence on a quorum that two histories can have; empty where only one can."""
        quorums = self.disjointQuorums()
        if quorums is None:
            return ""
        one, other = (" and ".join(_shown(name) for name in each) for each in quorums)
        return (
            f"the quorum {_shown(self.quorum)} is reached by {one}, and by {other}, who need not "
            "have seen the same history: require more than half of the witnesses"
        )

    def isQuorum(self, names: Collection[str]) -> bool:
        """Whether these witnesses are enough."""
        met = {NONE, *names}
        # Each group comes after its members. They may be nested too deeply to be descended.
        for name, group in self.groups.items():
            if sum(member in met for member in group.members) >= group.count:
                met.add(name)
        return self.quorum in met

    def cosignatures(self, note: Note) -> Sequence[Cosignature]:
        """
        The cosignatures that witnesses of this policy have made, earliest first.

        @raise SignatureRefused: one of them is not valid.
        """
        names = {(each.key.name, each.key.id): each.name for each in self.witnesses.values()}
        found: dict[str, int] = {}
        for key, signature in note.verified(each.key for each in self.witnesses.values()):
            name, time = names[key.name, key.id], key.timeOf(signature)
            found[name] = min(time, found.get(name, time))
        return sorted(
            (Cosignature(name, time) for name, time in found.items()),
            key=lambda each: (each.time, each.witness),
        )

    def check(self, note: Note) -> Witnessed:
        """
        Check a checkpoint.

        @raise Malformed: it is no checkpoint.
        @raise SignatureRefused: no log of this policy has signed it, or too few witnesses have.
        """
        head = TreeHead.parse(note.text)
        logs = [each for each in self.logs if each.key.name == head.origin]
        signed = note.verified(each.key for each in logs)
        if not signed:
            raise SignatureRefused(
                f"no log of the policy has signed the checkpoint of {head.origin}"
            )
        log = next(each for each in logs if each.key == signed[0][0])
        cosignatures = self.cosignatures(note)
        if not self.isQuorum({each.witness for each in cosignatures}):
            names = ", ".join(each.witness for each in cosignatures) or "nobody"
            raise SignatureRefused(f"the quorum {self.quorum} is not reached: cosigned by {names}")
        return Witnessed(head, log, cosignatures, self)


def _shown(name: str) -> str:
    """A name, of which bytes that are no UTF-8 are escaped."""
    return name.encode("utf-8", "backslashreplace").decode()


def _joined(names: Iterable[Sequence[str]]) -> Sequence[str]:
    return [each for some in names for each in some]


class _Reader:
    """
    Reads a policy line by line.
    """

    def __init__(self) -> None:
        self.logs: list[Party] = []
        self.witnesses: dict[str, Party] = {}
        self.groups: dict[str, Group] = {}
        self.quorum: str | None = None
        self._members: set[str] = set()
        self._keys: set[tuple[bool, bytes]] = set()

    def read(self, line: str) -> None:
        """
        Read a line.

        @raise Malformed: it is none.
        """
        if _CONTROL.search(line):
            raise Malformed("has control characters")
        words = _WORDS.findall(line)
        if not words or words[0].startswith("#"):
            return
        keyword, *rest = words
        if keyword == "log" and len(rest) in (1, 2):
            key = self._key(rest[0], isWitness=False)
            self.logs.append(Party(key.name, key, *rest[1:]))
        elif keyword == "witness" and len(rest) in (2, 3):
            name = self._newName(rest[0])
            self.witnesses[name] = Party(name, self._key(rest[1], isWitness=True), *rest[2:])
        elif keyword == "group" and len(rest) >= 3:
            name = self._newName(rest[0])
            members = [self._member(each) for each in rest[2:]]
            self.groups[name] = Group(self._count(rest[1], len(members)), members)
        elif keyword == "quorum" and len(rest) == 1:
            if self.quorum is not None:
                raise Malformed("there is a quorum line already")
            if rest[0] != NONE:
                self._checkDefined(rest[0])
            self.quorum = rest[0]
        else:
            raise Malformed(
                "is none of: log VKEY [URL], witness NAME VKEY [URL], group NAME all|any|K "
                "NAME..., quorum NAME"
            )

    def _key(self, text: str, *, isWitness: bool) -> VerifierKey:
        key = VerifierKey.parse(text)
        if key.isWitness != isWitness:
            wanted = "cosignatures (04, 06)" if isWitness else "Ed25519 signatures (01)"
            raise Malformed(f"the key of {key.name} is not one of {wanted}")
        known = (isWitness, key.key)
        if known in self._keys:
            raise Malformed(f"the key of {key.name} is there twice")
        self._keys.add(known)
        return key

    def _newName(self, name: str) -> str:
        if name == NONE or name in self.witnesses or name in self.groups:
            raise Malformed(f"the name {name} is taken")
        return name

    def _checkDefined(self, name: str) -> None:
        if name not in self.witnesses and name not in self.groups:
            raise Malformed(f"there is no witness or group {name} before this line")

    def _member(self, name: str) -> str:
        self._checkDefined(name)
        if name in self._members:
            raise Malformed(f"{name} is a member already")
        self._members.add(name)
        return name

    def _count(self, text: str, size: int) -> int:
        words = {"all": size, "any": 1}
        if text in words:
            return words[text]
        if not _COUNT.fullmatch(text) or int(text) > size:
            raise Malformed(f"{text[:20]!r} is neither all, any nor a number from 1 to {size}")
        return int(text)
