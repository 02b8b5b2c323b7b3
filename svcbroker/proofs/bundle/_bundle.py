"""
The bundle: its files, made and read, and the ZIP archive that they are in.

Every byte of the archive follows from the files in it, so a changed byte is always noticed, be it
in a place that programs for archives do not look at. The page in a bundle checks the same.

Time stamps of authorities (RFC 3161) on its checkpoints are a clock that neither the log's operator
nor a witness sets. They need the extra C{timestamps}.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import msgspec
from attrs import evolve, field, frozen
from cryptography.x509 import Certificate

from ...chain import Malformed
from .. import (
    NotOpened,
    ProofInvalid,
    WitnessedEvent,
    openWithKey,
    readFields,
    verifyWitnessed,
    withoutContent,
)
from .._age import FILE_KEY_SIZE
from .._certificates import unhex
from ..tlog import LogProof, Policy
from ._readme import ErasureNote, makeReadme

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
