"""
Evidence bundles: the proofs of some events, with a page that verifies them in a browser and a
README.txt of what they prove and what not, in one file that can be handed to somebody.

Every byte of the archive follows from the files in it, so a changed byte is always noticed, be it
in a place that programs for archives do not look at. The page in a bundle checks the same.

Time stamps of authorities (RFC 3161) on its checkpoints are a clock that neither the log's operator
nor a witness sets. They need the extra C{timestamps}.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from textwrap import fill
from typing import Any, Final, Self, TypeVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec
from attrs import evolve, field, frozen
from cryptography.x509 import Certificate
from msgspec import Struct

from ...chain import Malformed
from .. import (
    NotOpened,
    ProofInvalid,
    ProvedEvent,
    WitnessedEvent,
    openWithKey,
    readFields,
    sideTexts,
    verifyWitnessed,
    withoutContent,
)
from .._age import FILE_KEY_SIZE
from .._certificates import unhex
from ..tlog import LogProof, Policy

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


REQUEST_TYPE: Final = "application/timestamp-query"
"""The media type of a request."""
MAX_STAMP: Final = 64 * 1024
"""No answer of an authority is longer, in bytes."""


class StampRefused(Exception):
    """A time stamp that does not hold. The text says why."""


@frozen
class Stamp:
    """
    A time stamp that holds.

    @ivar time: when its authority says to have seen the checkpoint.
    @ivar authority: the name in the authority's certificate.
    """

    time: datetime
    authority: str


def stampName(text: str) -> str:
    """The name of the file with the time stamp of a checkpoint, by the text of its note."""
    return f"{sha256(text.encode()).hexdigest()}.tsr"


async def requestStamp(
    text: str, roots: Sequence[Certificate], ask: Callable[[bytes], Awaitable[bytes]]
) -> bytes:
    """
    Have an authority stamp a checkpoint.

    @param text: the text of the checkpoint's note.
    @param roots: the certificates that are trusted.
    @param ask: sends a request to the authority, and gives its answer.
    @return: the answer, which holds.
    @raise StampRefused: it does not.
    @raise ImportError: the extra is not installed.
    """
    client = _library()
    algorithm = client.HashAlgorithm.SHA256
    request = client.TimestampRequestBuilder().data(text.encode()).hash_algorithm(algorithm).build()
    answer = await ask(request.as_bytes())
    _check(answer, text, roots, client.VerifierBuilder.from_request(request))
    return answer


def checkStamp(answer: bytes, text: str, roots: Sequence[Certificate]) -> Stamp:
    """
    Check the time stamp of a checkpoint.

    @param answer: the answer of the authority.
    @param text: the text of the checkpoint's note.
    @param roots: the certificates that are trusted.
    @raise StampRefused: it does not hold.
    @raise ImportError: the extra is not installed.
    """
    return _check(answer, text, roots, _library().VerifierBuilder())


def _check(answer: bytes, text: str, roots: Sequence[Certificate], builder: Any) -> Stamp:
    client = _library()
    if len(answer) > MAX_STAMP:
        raise StampRefused(f"a time stamp has at most {MAX_STAMP} bytes")
    try:
        response = client.decode_timestamp_response(answer)
        for root in roots:
            builder = builder.add_root_certificate(root)
        builder.build().verify_message(response, text.encode())
        info = response.tst_info
        name = info.name.value.rfc4514_string() if info.name is not None else "not named"
        return Stamp(info.gen_time, name)
    except (client.VerificationError, ValueError, Malformed) as error:
        raise StampRefused(f"the time stamp does not hold: {error}") from None


def _library() -> Any:
    import rfc3161_client

    return rfc3161_client


T = TypeVar("T")

MANIFEST: Final = "manifest.json"
"""The file with the hashes of all others."""
FORMAT: Final = "svcbroker/bundle/1"
MAX_SIZE: Final = 256 * 1024 * 1024
"""No bundle is larger, in bytes."""
MAX_FILES: Final = 65_535
"""No bundle has more files, the manifest among them."""

_FORMAT_LINE: Final = re.compile(rb'"format": "(svcbroker/bundle/[0-9]{1,4})"\n}\n\Z')
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_MODE: Final = 0o100644 << 16


def encodeArchive(files: Mapping[str, bytes]) -> bytes:
    """
    The archive of some files, and a manifest of them.

    @param files: the contents by name; names are of ASCII.
    @raise ValueError: there are more than L{MAX_FILES}, or they are larger than L{MAX_SIZE}.
    """
    if len(files) >= MAX_FILES:
        raise ValueError(f"a bundle has at most {MAX_FILES} files, and not {len(files) + 1}")
    hashes = {name: sha256(files[name]).hexdigest() for name in sorted(files)}
    manifest = json.dumps({"files": hashes, "format": FORMAT}, indent=1) + "\n"
    output = BytesIO()
    with ZipFile(output, "w", ZIP_STORED) as archive:
        for name, data in sorted({**files, MANIFEST: manifest.encode("ascii")}.items()):
            entry = ZipInfo(name, _TIME)
            entry.create_system, entry.external_attr = _UNIX, _MODE
            archive.writestr(entry, data)
    if output.tell() > MAX_SIZE:
        raise ValueError(f"a bundle has at most {MAX_SIZE} bytes, and not {output.tell()}")
    return output.getvalue()


def decodeArchive(data: bytes) -> Mapping[str, bytes]:
    """
    The files of an archive, without the manifest.

    @raise Malformed: it is not an archive that L{encodeArchive} has written.
    """
    if len(data) > MAX_SIZE:
        raise Malformed(f"the bundle is larger than {MAX_SIZE} bytes")
    try:
        with ZipFile(BytesIO(data)) as archive:
            entries = archive.infolist()
            if any(each.compress_type != ZIP_STORED for each in entries):
                raise Malformed("the bundle is compressed")
            # Entries that share their bytes would be read again and again.
            if sum(each.file_size for each in entries) > len(data):
                raise Malformed("the files of the bundle are larger than the bundle")
            files = {each.filename: archive.read(each) for each in entries}
    except (BadZipFile, ValueError, KeyError, RuntimeError, NotImplementedError, EOFError) as error:
        raise Malformed(f"the bundle is not an archive: {error}") from None
    format = _FORMAT_LINE.search(files.pop(MANIFEST, b"")[-80:])
    if format is not None and format[1] != FORMAT.encode():
        raise Malformed(
            f"the bundle has format {format[1].decode()}, and this svcbroker reads {FORMAT}: use a "
            "newer one"
        )
    try:
        if encodeArchive(files) == data:
            return files
    except (ValueError, OSError):
        pass
    raise Malformed("the bundle is not what was written: a byte of it is another one")


POLICY: Final = "policy.txt"
"""The file of the policy by which it is verified where the reader has none."""
PROOFS: Final = "proofs/"
"""The folder of the proofs."""
PROOF_SUFFIX: Final = ".tlog-proof"
ERASURES: Final = "erasures.json"
"""The file with what the broker has said of erased events. It is there if there are any."""
REVEALS: Final = "reveals.json"
"""The file with the keys of closed contents that are revealed. It is there if there are any."""
STAMP: Final = "timestamps/"
"""The folder of the time stamps (RFC 3161) of checkpoints."""
PAGE: Final = "verify.html"
README: Final = "README.txt"

_HERE: Final = Path(__file__).parent / "page"
_SCRIPTS: Final = ("verify.mjs", "verify-log.mjs", "reveal.mjs", "receipts.mjs", "bundle.mjs")
_IMPORT: Final = re.compile(r'^import [^;]* from "\./[a-z-]+\.mjs";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=async |function |const )", re.MULTILINE)


@frozen(kw_only=True)
class Bundle:
    """
    A bundle.

    @ivar proofs: the C{tlog-proof} files of the events, by the events' ids.
    @ivar policy: the policy file that it comes with.
    @ivar timestamps: the time stamps of checkpoints, by the names that L{stampName} gives.
    @ivar erasures: when and why events were erased, by the events' ids. It is not proved.
    @ivar reveals: the keys of closed contents, in hexadecimal digits, by the events' ids.
    """

    proofs: Mapping[str, bytes]
    policy: bytes
    timestamps: Mapping[str, bytes] = field(factory=dict)
    erasures: Mapping[str, ErasureNote] = field(factory=dict)
    reveals: Mapping[str, str] = field(factory=dict)

    def encode(self) -> bytes:
        """
        The file of the bundle, with its page and a text that says what it proves.

        @raise svcbroker.proofs.ProofInvalid: a proof does not hold by the bundle's own policy.
        """
        found = self.verify(Policy.parse(self.policy))
        readme = makeReadme(found, self.erasures, isStamped=bool(self.timestamps))
        files = {
            POLICY: self.policy,
            **{f"{PROOFS}{name}{PROOF_SUFFIX}": data for name, data in self.proofs.items()},
            **{f"{STAMP}{name}": data for name, data in self.timestamps.items()},
        }
        if self.erasures:
            files[ERASURES] = msgspec.json.encode(self.erasures, order="deterministic")
        if self.reveals:
            files[REVEALS] = msgspec.json.encode(self.reveals, order="deterministic")
        page = makePage(files)
        return encodeArchive({**files, PAGE: page, README: readme})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """
        Read the file of a bundle. The page in it is not looked at.

        @raise Malformed: it is none.
        """
        files = dict(decodeArchive(data))
        for name in (PAGE, README):
            files.pop(name, None)
        policy = files.pop(POLICY, None)
        if policy is None:
            raise Malformed(f"the bundle has no {POLICY}")
        try:
            policy.decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"{POLICY} is not UTF-8") from None
        erasures = _readByEvent(dict[str, ErasureNote], ERASURES, files.pop(ERASURES, None))
        reveals = _readByEvent(dict[str, str], REVEALS, files.pop(REVEALS, None))
        proofs, timestamps = {}, {}
        for name, content in files.items():
            if name.startswith(PROOFS) and name.endswith(PROOF_SUFFIX):
                proofs[name.removeprefix(PROOFS).removesuffix(PROOF_SUFFIX)] = content
            elif name.startswith(STAMP):
                timestamps[name.removeprefix(STAMP)] = content
            else:
                raise Malformed(f"the bundle has a file that is not known: {name[:80]!r}")
        if not proofs:
            raise Malformed("the bundle has no proofs")
        if not set(reveals) <= set(proofs):
            raise Malformed("the bundle has a key of an event that is not in it")
        return cls(
            proofs=proofs,
            policy=policy,
            timestamps=timestamps,
            erasures=erasures,
            reveals=reveals,
        )

    def verify(self, policy: Policy) -> Sequence[WitnessedEvent]:
        """
        Verify all proofs.

        @param policy: whom the reader trusts.
        @return: the events, in the order of their names. Those that are revealed are opened.
        @raise svcbroker.proofs.ProofInvalid: a proof does not hold, or is of another event than its
            name says; a key does not open its event.
        """
        found = [_verified(name, data, policy) for name, data in sorted(self.proofs.items())]
        return [_opened(each, self.reveals.get(each.event.eventId)) for each in found]

    def withholding(self, ids: Collection[str]) -> Self:
        """
        The bundle with proofs that show nothing of the contents of some events.

        @raise svcbroker.proofs.ProofInvalid: an event is of version 1, whose commitment has no
            salt.
        """
        proofs = dict(self.proofs)
        for each in ids:
            proof = LogProof.decode(proofs[each])
            proofs[each] = evolve(proof, extra=withoutContent(proof.extra)).encode()
        reveals = {name: key for name, key in self.reveals.items() if name not in ids}
        return evolve(self, proofs=proofs, reveals=reveals)

    def stamp(self, name: str, roots: Sequence[Certificate]) -> Stamp | None:
        """
        Check the time stamp of the checkpoint in a proof that was verified.

        @param name: the name of the proof.
        @param roots: the certificates that are trusted.
        @return: C{None} where there is none.
        @raise StampRefused: it does not hold.
        @raise ImportError: the extra C{timestamps} is not installed.
        """
        text = LogProof.decode(self.proofs[name]).checkpoint.text
        answer = self.timestamps.get(stampName(text))
        return None if answer is None else checkStamp(answer, text, roots)


def _readByEvent(type: type[dict[str, T]], name: str, data: bytes | None) -> Mapping[str, T]:
    """
    Read a file with something about events, by their ids.

    @raise Malformed: it cannot be read.
    """
    if data is None:
        return {}
    try:
        return readFields(type, data, "about events")
    except ProofInvalid as error:
        raise Malformed(f"{name}: {error}") from None


def _opened(found: WitnessedEvent, key: str | None) -> WitnessedEvent:
    """
    Open the content of an event with the key that reveals it.

    @raise ProofInvalid: it does not.
    """
    event = found.event
    if key is None:
        return found
    try:
        if event.content is None or not event.isClosed:
            raise NotOpened("it is not closed")
        plain = openWithKey(event.content, event.extensions, unhex(key, FILE_KEY_SIZE))
    except (Malformed, NotOpened) as error:
        raise ProofInvalid(f"{event.eventId}: its key does not open it: {error}") from None
    return evolve(found, event=evolve(event, opened=plain))


def _verified(name: str, data: bytes, policy: Policy) -> WitnessedEvent:
    """
    Verify the proof of an event.

    @raise ProofInvalid: it does not hold, or is of another event.
    """
    try:
        found = verifyWitnessed(data, policy)
    except ProofInvalid as error:
        raise ProofInvalid(f"{name}: {error}") from None
    if str(found.event.eventId) != name:
        raise ProofInvalid(f"{name}: the proof is of another event, {found.event.eventId}")
    return found


def makePage(files: Mapping[str, bytes]) -> bytes:
    """
    The page that verifies some files without a network.

    @param files: the policy and the proofs, by name.
    """
    scripts = [(_HERE / name).read_text("utf-8") for name in _SCRIPTS]
    script = "\n".join(_EXPORT.sub("", _IMPORT.sub("", each)) for each in scripts)
    style = (_HERE / "bundle.css").read_text("utf-8")
    data = json.dumps({name: b64encode(files[name]).decode("ascii") for name in sorted(files)})
    # In base64 there is nothing that ends a script.
    replaced = {
        "@SCRIPT-HASH@": _sourceHash(f"\n{script}"),
        "@STYLE-HASH@": _sourceHash(f"\n{style}"),
        "@STYLE@": style,
        "@DATA@": data,
        "@SCRIPT@": script,
    }
    page = (_HERE / "bundle.html").read_text("utf-8")
    return re.sub(r"@[A-Z-]+@", lambda match: replaced[match[0]], page).encode()


def _sourceHash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode('ascii')}"
