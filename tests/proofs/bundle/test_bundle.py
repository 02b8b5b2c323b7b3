"""
Tests for bundles: what is in them, and that every byte of them counts.
"""

from __future__ import annotations

import json
import random
import re
from base64 import b64decode
from hashlib import sha256
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.proofs import ProofInvalid
from svcbroker.proofs.bundle import Bundle, decodeArchive, encodeArchive
from svcbroker.proofs.tlog import Policy
from tests import examples

from .support import CONTENTS, TIME, bundle, closedBundle, executedBundle, signedBundle

MUTATIONS = examples(500)


class ArchiveTests(SynchronousTestCase):
    """
    L{encodeArchive} and L{decodeArchive}.
    """

    def test_programsForArchivesReadIt(self) -> None:
        """It is an ordinary archive, with a manifest of the files."""
        files = {"b.txt": b"two", "a/1": b"one"}
        data = encodeArchive(files)
        with ZipFile(BytesIO(data)) as archive:
            self.assertIsNone(archive.testzip())
            self.assertEqual(archive.namelist(), ["a/1", "b.txt", "manifest.json"])
            self.assertIn(sha256(b"one").hexdigest(), archive.read("manifest.json").decode())
        self.assertEqual(decodeArchive(data), files)

    def test_otherArchivesAreRefused(self) -> None:
        """An archive that was written by another program is refused, and what is none."""
        output = BytesIO()
        with ZipFile(output, "w", ZIP_DEFLATED) as archive:
            archive.writestr("a", b"x" * 1000)
        for wrong in (output.getvalue(), b"", b"PK\x03\x04", encodeArchive({"a": b"x"}) + b"x"):
            with self.assertRaises(Malformed):
                decodeArchive(wrong)

    def test_entriesThatShareBytesAreNotRead(self) -> None:
        """An archive whose list names the same bytes many times is refused before they are read."""
        output = BytesIO()
        with ZipFile(output, "w") as archive:
            archive.writestr("a", bytes(100_000))
            archive.filelist *= 1000
        with self.assertRaisesRegex(Malformed, "larger than the bundle"):
            decodeArchive(output.getvalue())

    def test_everyChangedByteIsNoticed(self) -> None:
        """Whatever byte is changed, the archive is refused."""
        data = encodeArchive({"a.txt": b"some content", "b": b""})
        for place in range(len(data)):
            changed = bytearray(data)
            changed[place] ^= 1 << place % 8
            with self.assertRaises(Malformed, msg=place):
                decodeArchive(bytes(changed))


class BundleTests(SynchronousTestCase):
    """
    L{Bundle}.
    """

    def test_eventsAreProvedWithTheirWitnesses(self) -> None:
        """A bundle proves its events, and the times at which witnesses have seen them."""
        again = Bundle.decode(bundle().encode())
        self.assertEqual(again, bundle())
        found = again.verify(Policy.parse(again.policy))
        self.assertEqual({each.event.eventId for each in found}, set(again.proofs))
        self.assertEqual({each.event.content for each in found}, set(CONTENTS))
        for each in found:
            seen = [(one.witness, one.time) for one in each.witnessed.cosignatures]
            self.assertEqual(seen, [("b", TIME), ("a", TIME + 5)])

    def test_policyOfTheReaderDecides(self) -> None:
        """A reader who wants other witnesses, or another log, is not content."""
        text = bundle().policy.decode()
        for wrong in (
            text.replace("group all 2", "group all all"),
            text.replace("group all 2 a b c", "group all 2 a c"),
            re.sub(r"^log .*\n", "", text),
        ):
            self.assertNotEqual(wrong, text)
            with self.assertRaises(ProofInvalid):
                bundle().verify(Policy.parse(wrong.encode()))

    def test_proofsAreOfTheEventsTheyAreNamedFor(self) -> None:
        """A proof under the name of another event is refused."""
        (one, first), (other, second), *_ = bundle().proofs.items()
        swapped = evolve(bundle(), proofs={one: second, other: first})
        with self.assertRaisesRegex(ProofInvalid, "another event"):
            swapped.verify(Policy.parse(bundle().policy))

    def test_unknownFilesAreRefused(self) -> None:
        """A bundle has what it has to have, and nothing else."""
        files = decodeArchive(bundle().encode())
        self.assertEqual(
            {name for name in files if not name.startswith("proofs/")},
            {"README.txt", "policy.txt", "verify.html"},
        )
        without = {name: data for name, data in files.items() if name != "policy.txt"}
        [proof, *_] = (name for name in files if name.startswith("proofs/"))
        twice = {**files, proof.removesuffix(".tlog-proof"): b""}
        for wrong in ({**files, "more": b""}, twice, without, {"policy.txt": b""}):
            with self.assertRaises(Malformed):
                Bundle.decode(encodeArchive(wrong))

    def test_everyMutationIsRefused(self) -> None:
        """A byte that is changed, lost or added anywhere is refused."""
        data, dice = bundle().encode(), random.Random(7)
        for _ in range(MUTATIONS):
            with self.assertRaises(Malformed):
                Bundle.decode(mutated(data, dice))

    def readme(self, made: Bundle) -> str:
        """The README.txt of a bundle, in one line."""
        text = decodeArchive(made.encode())["README.txt"].decode()
        self.assertLessEqual(max(map(len, text.splitlines())), 82)
        return " ".join(text.split())

    def test_readmeSaysWhoHasSigned(self) -> None:
        """It names the witnesses, and says what has no author."""
        text = self.readme(bundle())
        for words in (
            "2 witnesses (a, b) have signed the state of the log",
            "what each of the 4 events says, to the byte",
            "who published each of the 4 events: no author has signed them",
        ):
            self.assertIn(words, text)
        for words in ("author's key", "erased", "timestamps/", "time stamps"):
            self.assertNotIn(words, text)
        text = self.readme(signedBundle())
        self.assertIn("that 1 of the 2 events was signed by the holder of the author's key", text)

    def test_readmeSaysWhoHasExecuted(self) -> None:
        """Of plain witnesses it says that they see the log grow, and not what is in it."""
        text = self.readme(bundle())
        self.assertIn("nobody who has executed its blocks has signed the state.", text)
        text = self.readme(executedBundle())
        self.assertIn("Of them x have executed all blocks", text)
        self.assertNotIn("nobody who", text)

    def test_readmeSaysWhatRestsOnTheKeyOfTheLog(self) -> None:
        """Without witnesses it speaks of none."""
        text = self.readme(signedBundle(witnessed=False))
        self.assertIn("No witness has signed the state of the log", text)
        self.assertIn("is in a log that the holder of the log's key has signed", text)
        self.assertNotIn("witnesses", text)

    def test_readmeSaysWhatIsStamped(self) -> None:
        """Time stamps are mentioned where there are some."""
        text = self.readme(evolve(bundle(), timestamps={"x.tsr": b""}))
        self.assertIn("by the time stamps of an authority", text)
        self.assertIn("timestamps/ time stamps", text)

    def test_erasuresAreTold(self) -> None:
        """By whom, when, why and that the broker said so; they are read again."""
        made = signedBundle(erased=True)
        text = self.readme(made)
        for words in (
            "what 1 of the 2 events says, to the byte",
            'erased on 2026-09-21 14:13:20 UTC by the account "olga".',
            'Reason: "request 17\\nof a @WHAT@ customer". The log\'s broker says so',
            "cannot be checked any more",
        ):
            self.assertIn(words, text)
        self.assertEqual(Bundle.decode(made.encode()), made)
        files = decodeArchive(made.encode())
        with self.assertRaisesRegex(Malformed, "erasures.json"):
            Bundle.decode(encodeArchive({**files, "erasures.json": b"[]"}))
        unknown = self.readme(evolve(made, erasures={}))
        self.assertIn("withheld, or erased: it is not in the proof.", unknown)
        self.assertNotIn("erasures.json", unknown)

    def test_revealedEventsAreOpened(self) -> None:
        """Exactly the revealed event is opened, and README says of each what it is."""
        made = Bundle.decode(closedBundle().encode())
        found = made.verify(Policy.parse(made.policy))
        self.assertEqual([each.event.opened for each in found], [b"price 7", None, None])
        self.assertEqual([each.event.isClosed for each in found], [True, True, False])
        readme = " ".join(decodeArchive(closedBundle().encode())["README.txt"].decode().split())
        for words in (
            "what 2 of the 3 events say, to the byte",
            "what 1 of the 3 events says: it is closed",
            f"{found[0].event.eventId}: closed, 208 bytes, and revealed.",
            f"{found[1].event.eventId}: closed, 208 bytes; it is not opened here.",
            "reveals.json",
        ):
            self.assertIn(words, readme)
        readme = decodeArchive(closedBundle(revealed=False).encode())["README.txt"].decode()
        self.assertNotIn("reveals.json the", " ".join(readme.split()))

    def test_wrongKeysAreRefused(self) -> None:
        """A key of another event, one that is malformed, and one of an open event are refused."""
        made = closedBundle()
        [(first, key)] = made.reveals.items()
        _, second, third = sorted(made.proofs)
        policy = Policy.parse(made.policy)
        for reveals in ({second: key}, {first: "00"}, {first: "00" * 16}, {third: key}):
            with self.assertRaisesRegex(ProofInvalid, "its key does not open it"):
                evolve(made, reveals=reveals).verify(policy)
        files = dict(decodeArchive(made.encode()))
        files["reveals.json"] = json.dumps({"00000000-1-1": key}).encode()
        with self.assertRaisesRegex(Malformed, "a key of an event that is not in it"):
            Bundle.decode(encodeArchive(files))
        files["reveals.json"] = b"[]"
        self.assertRaises(Malformed, Bundle.decode, encodeArchive(files))

    def test_pageAllowsItsOwnScriptOnly(self) -> None:
        """The policy of the page names the hashes of its script and its style, and no source."""
        page = decodeArchive(bundle().encode())["verify.html"].decode()
        [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
        for kind, pattern in (
            ("script", r'<script type="module">(.*?)</script>'),
            ("style", r"<style>(.*?)</style>"),
        ):
            [source] = re.findall(pattern, page, re.DOTALL)
            [hash] = re.findall(rf"{kind}-src 'sha256-([^']*)'", policy)
            self.assertEqual(b64decode(hash), sha256(source.encode()).digest())
        self.assertNotRegex(page, r"https?:|\bimport\b[^(\n]*\bfrom\b|@[A-Z-]+@")


def mutated(data: bytes, dice: random.Random) -> bytes:
    """The data with a byte changed, lost or doubled."""
    place = dice.randrange(len(data))
    piece = bytes([data[place] ^ 1 << dice.randrange(8)])
    return data[:place] + dice.choice([piece, b"", piece + piece]) + data[place + 1 :]
