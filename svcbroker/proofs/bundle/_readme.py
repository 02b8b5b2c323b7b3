"""
README.txt of a bundle: the facts that this bundle proves, and those that it does not prove, for
readers who are no engineers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill
from typing import Final

from msgspec import Struct

from .. import ProvedEvent, WitnessedEvent, sideTexts

_TEMPLATE: Final = Path(__file__).parent / "page" / "README.txt"
_WIDTH: Final = 80


class ErasureNote(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The broker's account of an erasure: when, by whom and why. A proof does not have it.

    @ivar timestamp: the time of the block that erased it, in milliseconds since the epoch.
    @ivar account: the account of the operator who asked for it; empty for a user of the machine.
    @ivar reason: why, as the operator said.
    @ivar transHash: the hash of the transaction that erased it: C{0x} and 64 hexadecimal digits.
    """

    timestamp: int
    account: str
    reason: str
    transHash: str


def makeReadme(
    found: Sequence[WitnessedEvent], erasures: Mapping[str, ErasureNote], *, isStamped: bool
) -> bytes:
    """
    The text for a bundle.

    @param found: what its proofs prove.
    @param erasures: what the broker has said of erased events, by the events' ids.
    @param isStamped: whether there are time stamps of an authority.
    """
    replaced = {
        "@TITLE@": _counted(len(found), "EVENT", "EVENTS"),
        "@WHAT@": "\n\n".join(_what(found, isStamped)),
        "@NOT@": _notProved(found),
        "@ERASED@": _erased(found, erasures) + _closed(found) + _receipts(found),
        "@KEYS@": _keys(found),
        "@FILES@": "\n".join(_files(found, erasures, isStamped)),
    }
    text = _TEMPLATE.read_text("utf-8")
    text = re.sub(r"@[A-Z]+@", lambda match: replaced[match[0]], text)
    return text.encode()


def _what(found: Sequence[WitnessedEvent], isStamped: bool) -> Iterator[str]:
    """Paragraphs about the log, the signers of its state, and the proofs."""
    yield fill(
        "Each event in this archive was published to a log. The log is a chain of blocks: nothing "
        f"in it can be changed without changing all blocks after it. {_seen(found)}"
        f"{_executed(found)} No signature "
        "of the nodes that decide the blocks is in this archive, so it makes no difference here "
        "whether one operator has all of them (an embedded ledger) or several organisations have "
        "(CometBFT).",
        _WIDTH,
    )
    items = ";\n".join(_proved(found, isStamped))
    yield f"This archive proves, without asking the operator of the log:\n\n{items}."


def _namesOf(found: Sequence[WitnessedEvent]) -> Sequence[frozenset[str]]:
    """The witnesses of each event."""
    return [frozenset(one.witness for one in each.witnessed.cosignatures) for each in found]


def _seen(found: Sequence[WitnessedEvent]) -> str:
    """The witnesses that have signed the state of the log."""
    seen = _namesOf(found)
    fewest, most = min(map(len, seen)), max(map(len, seen))
    if not most:
        return (
            "No witness has signed the state of the log: the policy in this archive asks for none. "
            "So all of it rests on the log's own key. Its operator has that key, and could have "
            "made a log for this very archive, with any times."
        )
    if len(set(seen)) > 1:
        return (
            f"From {fewest} to {most} witnesses have signed the state of the log in which an event "
            "is, with the times at which they saw it: the page says who they are."
        )
    names = ", ".join(sorted(seen[0]))
    if most == 1:
        return f"One witness ({names}) has signed the state of the log, with the time of seeing it."
    return (
        f"{most} witnesses ({names}) have signed the state of the log, with the times at which "
        "they saw it."
    )


def _executed(found: Sequence[WitnessedEvent]) -> str:
    """The sentence on what the witnesses have looked at."""
    if not any(_namesOf(found)):
        return ""
    executed = [frozenset(each.witnessed.executedBy) for each in found]
    if all(executed):
        names = ", ".join(sorted(frozenset.union(*executed)))
        return (
            f" Of them {names} have executed all blocks: their numbers, what is missing, and the "
            "signatures of authors."
        )
    return (
        " A witness sees that the log grows, and not what is in it: nobody who has executed its "
        f"blocks has signed the state{'' if not any(executed) else ' for each event'}."
    )


def _proved(found: Sequence[WitnessedEvent], isStamped: bool) -> Iterator[str]:
    """The claims that are proved, as items of a list."""
    count = len(found)
    events = [each.event for each in found]
    whole = [each for each in events if each.content is not None and not _isUnread(each)]
    signed = [each for each in events if each.content is not None and each.author is not None]
    if whole:
        yield _item(f"what {_those(len(whole), count, 'says', 'say')}, to the byte")
    seen = sum(map(bool, _namesOf(found)))
    if seen:
        yield _item(
            f"that {_those(seen, count, 'was', 'were')} in the log when a witness saw it, so not "
            "later than that time"
        )
    if seen < count:
        yield _item(
            f"that {_those(count - seen, count, 'is', 'are')} in a log that the holder of the "
            "log's key has signed"
        )
    if signed:
        yield _item(
            f"that {_those(len(signed), count, 'was', 'were')} signed by the holder of the "
            "author's key that is named"
        )
    if isStamped:
        yield _item(
            "by the time stamps of an authority, which the page does not check and the program "
            "does: that the log had this state before their times"
        )


def _notProved(found: Sequence[WitnessedEvent]) -> str:
    """The sentence about claims that are not proved."""
    unsigned = sum(each.event.author is None for each in found)
    gone = sum(each.event.content is None for each in found)
    items = ["that what an event says is true", "who holds a key"]
    if unsigned:
        items.append(
            f"who published {_those(unsigned, len(found), '', '').strip()}: no author has signed "
            f"{'it' if unsigned == 1 else 'them'}"
        )
    if gone:
        items.append(f"what {_those(gone, len(found), 'said', 'said')}: it is not here")
    closed = sum(_isUnread(each.event) for each in found)
    if closed:
        items.append(f"what {_those(closed, len(found), 'says', 'say')}: it is closed")
    items.append("or that nothing else was published")
    return fill(f"It does not prove {'; '.join(items)}.", _WIDTH)


def _erased(found: Sequence[WitnessedEvent], erasures: Mapping[str, ErasureNote]) -> str:
    """The section on events without content; empty where there are none."""
    gone = [each.event for each in found if each.event.content is None]
    if not gone:
        return ""
    lines = ["", "Events without content", "----------------------"]
    for each in gone:
        note = erasures.get(each.eventId)
        said = "withheld, or erased: it is not in the proof." if note is None else _told(note)
        lines.append(_item(f"{each.eventId}: {said}"))
    still = (
        "Of such an event is still proved that there was one: its topic, its number, its block and "
        "its public extensions, and the key of its author where it has one. The author's signature "
        "was removed with the content, and cannot be checked any more."
    )
    return "\n".join([*lines, "", fill(still, _WIDTH), ""])


def _isUnread(event: ProvedEvent) -> bool:
    """Whether an event is closed, and not revealed."""
    return event.isClosed and event.opened is None


def _closed(found: Sequence[WitnessedEvent]) -> str:
    """The section on closed events; empty where there are none."""
    closed = [each.event for each in found if each.event.isClosed]
    if not closed:
        return ""
    lines = ["", "Closed events", "-------------"]
    for each in closed:
        size = f"closed, {len(each.content or b'')} bytes"
        said = f"{size}; it is not opened here." if _isUnread(each) else f"{size}, and revealed."
        lines.append(_item(f"{each.eventId}: {said}"))
    still = (
        "Authors close such events, so that named recipients alone can read them. What is revealed "
        "has its key in reveals.json; page and program check that it is the key by which the event "
        "was closed. It opens no other event."
    )
    return "\n".join([*lines, "", fill(still, _WIDTH), ""])


def _receipts(found: Sequence[WitnessedEvent]) -> str:
    """The section on both sides, with receipts of recipients; empty where there are none."""
    texts = sideTexts([each.event for each in found])
    if not texts:
        return ""
    lines = ["", "Who said what, and who has received it", "-" * 38, *map(_item, texts[:-1])]
    still = (
        "A receipt is signed by its recipient, and is an event of the log itself. It says that all "
        f"events up to a number were received: not that anybody agrees. {texts[-1]}"
    )
    return "\n".join([*lines, "", fill(still, _WIDTH), ""])


def _told(note: ErasureNote) -> str:
    by = (
        f"the account {_quoted(note.account)}" if note.account else "a user of the broker's machine"
    )
    return (
        f"erased on {_timeText(note.timestamp)} by {by}. Reason: {_quoted(note.reason)}. The "
        "log's broker says so; when, by whom and why is not proved here."
    )


def _keys(found: Sequence[WitnessedEvent]) -> str:
    those = "the log's operator and the witnesses publish"
    if not any(_namesOf(found)):
        those = "the log's operator publishes"
    return fill(
        "The page trusts the keys in policy.txt. Whoever made this archive also made that file. "
        f"So compare its keys with those that {those}, by telephone, on paper or on the web.",
        _WIDTH,
    )


def _files(
    found: Sequence[WitnessedEvent], erasures: Mapping[str, ErasureNote], isStamped: bool
) -> Iterator[str]:
    yield "  proofs/        a proof for each event (text; format c2sp.org/tlog-proof)"
    if any(_namesOf(found)):
        yield "  policy.txt     the keys of the log and the witnesses, and how many are needed"
    else:
        yield "  policy.txt     the key of the log; no witness is needed"
    if isStamped:
        yield "  timestamps/    time stamps of an authority (RFC 3161) on the checkpoints"
    if erasures:
        yield "  erasures.json  what the broker has said of erased events (not proved)"
    if any(each.event.isClosed and each.event.opened is not None for each in found):
        yield "  reveals.json   the keys of the closed events that are revealed"
    yield "  verify.html    the page"
    yield "  manifest.json  the SHA-256 of all files"


def _those(some: int, count: int, one: str, more: str) -> str:
    """So many of the events, and a verb."""
    if some < count:
        return f"{some} of the {count} events {one if some == 1 else more}"
    return f"the event {one}" if count == 1 else f"each of the {count} events {one}"


def _item(text: str) -> str:
    return fill(
        text,
        _WIDTH,
        initial_indent="  - ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _counted(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def _quoted(text: str) -> str:
    """A text that others have written, without what would change the lines around it."""
    shown = (
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )
    return f'"{"".join(shown)}"'


def _timeText(milliseconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(milliseconds // 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds} milliseconds after 1970"
