"""
Tests for signed notes, their keys, and tree heads.
"""

from __future__ import annotations

import importlib
import struct
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Malformed
from svcbroker.proofs.tlog import (
    KeyType,
    LogKey,
    MlDsaWitnessKey,
    Note,
    SignatureRefused,
    TreeHead,
    VerifierKey,
    WitnessKey,
    _note,
)

from .support import MemoryLog, mlDsaKey

# Both are of the specification of signed notes.
EXAMPLE_KEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
EXAMPLE = (
    "This is an example message.\n\n"
    "\u2014 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYj"
    "OBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
).encode()


class NoteTests(SynchronousTestCase):
    """
    L{Note}.
    """

    def test_exampleOfTheSpecificationIsVerified(self) -> None:
        """The example of the specification has a valid signature of its key."""
        key = VerifierKey.parse(EXAMPLE_KEY)
        self.assertEqual((key.text, key.type), (EXAMPLE_KEY, KeyType.ED25519))
        note = Note.decode(EXAMPLE)
        self.assertEqual(note.encode(), EXAMPLE)
        self.assertEqual([found for found, _ in note.verified([key])], [key])

    def test_changedTextIsRefused(self) -> None:
        """A known key's signature under another text is an error, an unknown key's is not."""
        note = Note.decode(EXAMPLE.replace(b"example message", b"exbmple message"))
        with self.assertRaises(SignatureRefused):
            note.verified([VerifierKey.parse(EXAMPLE_KEY)])
        self.assertEqual(note.verified([MemoryLog(1).key.verifier]), [])

    @given(st.integers(0, len(EXAMPLE) - 1), st.integers(1, 255))
    def test_everyChangedByteIsNoticed(self, place: int, change: int) -> None:
        """With any byte changed, the note is malformed, refused or not signed by the key."""
        data = bytearray(EXAMPLE)
        data[place] ^= change
        try:
            found = Note.decode(bytes(data)).verified([VerifierKey.parse(EXAMPLE_KEY)])
        except (Malformed, SignatureRefused):
            return
        self.assertEqual(found, [])

    def test_otherBytesAreRefused(self) -> None:
        """A text that is no note is refused."""
        line = EXAMPLE.split(b"\n\n")[1]
        for wrong in (
            b"",
            b"text\n",
            b"text\n\n",
            b"text\n" + line,
            b"text\n\n" + line[:-1],
            b"text\n\n" + line + b"\n",
            b"te\rxt\n\n" + line,
            b"\xff\n\n" + line,
            b"text\n\n" + line.replace(b"com/foo", b"com foo"),
            b"text\n\n" + line.replace(b"=\n", b"==\n"),
            b"text\n\n" + line * 65,
            b"x" * 65536 + b"\n\n" + line,
        ):
            with self.assertRaises(Malformed, msg=wrong):
                Note.decode(wrong)

    def test_textMayHaveEmptyLines(self) -> None:
        """The text ends at the last empty line."""
        key = LogKey("a", b"k" * 32)
        note = Note("one\n\ntwo\n").signedBy(key.sign("one\n\ntwo\n"))
        self.assertEqual(Note.decode(note.encode()), note)

    def test_signaturesAreAddedOnce(self) -> None:
        """A signature that the note has already is not added."""
        log = MemoryLog(3)
        note = log.checkpoint(3)
        again = note.signedBy(log.key.sign(note.text), WitnessKey("w", b"w" * 32).cosign("x\n", 5))
        self.assertEqual([each.name for each in again.signatures], ["broker.example/log", "w"])


class KeyTests(SynchronousTestCase):
    """
    L{VerifierKey}, L{LogKey} and L{WitnessKey}.
    """

    def test_malformedKeysAreRefused(self) -> None:
        """A text that is no vkey is refused."""
        name, id, data = EXAMPLE_KEY.split("+", 2)
        for wrong in (
            "",
            name,
            f"{name}+{id}",
            f"{name}x+{id}+{data}",
            f"{name}+{id[:-1]}+{data}",
            f"{name}+{id.upper()}+{data}",
            f"+{id}+{data}",
            f"a b+{id}+{data}",
            f"{name}+{id}+{data[:-4]}",
            f"{name}+{id}+!",
            f"{name}+{id}+Bg{data[2:]}",
        ):
            with self.assertRaises(Malformed, msg=wrong):
                VerifierKey.parse(wrong)

    def test_unusableKeysAreRefused(self) -> None:
        """A vkey with a key that anybody could sign with, or nobody, is none."""
        for key in (b"\x01" + bytes(31), b"\xee" + b"\xff" * 30 + b"\x7f", b"\x02" + bytes(31)):
            for type in (KeyType.ED25519, KeyType.COSIGNATURE):
                text = VerifierKey("example.org/w", type, key).text
                with self.assertRaisesRegex(Malformed, "not a usable Ed25519 key"):
                    VerifierKey.parse(text)

    def test_cosignaturesHaveTheirTime(self) -> None:
        """A cosignature is valid for its text and time only, and its key is not one of a log."""
        key = WitnessKey("witness.example/w", b"w" * 32)
        public = VerifierKey.parse(key.verifier.text)
        self.assertEqual(public.type, KeyType.COSIGNATURE)
        signature = key.cosign("text\n", 1_700_000_000)
        self.assertEqual(public.timeOf(signature), 1_700_000_000)
        self.assertTrue(public.isValid("text\n", signature.signature))
        self.assertFalse(public.isValid("texd\n", signature.signature))
        later = (1_700_000_001).to_bytes(8, "big") + signature.signature[8:]
        self.assertFalse(public.isValid("text\n", later))
        self.assertFalse(public.isValid("text\n", signature.signature[8:]))
        self.assertNotEqual(LogKey("witness.example/w", b"w" * 32).verifier.id, public.id)


class MlDsaTests(SynchronousTestCase):
    """
    L{MlDsaWitnessKey}, and the keys that verify it.
    """

    NAME = "witness.example/w"

    def setUp(self) -> None:
        self.key = mlDsaKey(self.NAME)
        self.public = VerifierKey.parse(self.key.verifier.text)
        self.head = MemoryLog(5).head(5)
        self.signature = self.key.cosign(self.head.text, 1_700_000_000)

    def test_signedBytesAreThoseOfSpecification(self) -> None:
        """The library verifies it under the structure as the specification has it."""
        name, origin = self.NAME.encode(), self.head.origin.encode()
        message = struct.pack(
            f">12sB{len(name)}sQB{len(origin)}sQQ32s",
            *(b"subtree/v1\n\0", len(name), name, 1_700_000_000, len(origin), origin),
            *(0, 5, self.head.root),
        )
        data = self.signature.signature
        self.assertEqual((data[:8], len(data)), ((1_700_000_000).to_bytes(8, "big"), 8 + 2420))
        library = importlib.import_module("cryptography.hazmat.primitives.asymmetric.mldsa")
        library.MLDSA44PublicKey.from_public_bytes(self.public.key).verify(data[8:], message)
        digest = sha256(name + b"\n\x06" + self.public.key).digest()
        self.assertEqual((self.public.id, self.public.type), (digest[:4], 6))

    def test_cosignaturesAreOfTheirTree(self) -> None:
        """One is valid for its tree, time and name only, whatever else is in the note."""
        text, data = self.head.text, self.signature.signature
        self.assertTrue(self.public.isValid(text, data))
        self.assertTrue(self.public.isValid(text + "more\n", data))
        self.assertEqual(self.public.timeOf(self.signature), 1_700_000_000)
        self.assertTrue(self.public.isWitness)
        for other in (MemoryLog(5).head(4).text, text.replace("log", "lag"), "text\n", "\n\n\n"):
            self.assertFalse(self.public.isValid(other, data))
        for wrong in (b"", data[:8], data[:-1], data + b"x", bytes(8) + data[8:]):
            self.assertFalse(self.public.isValid(text, wrong))
        stranger = VerifierKey("other.example", self.public.type, self.public.key)
        self.assertFalse(stranger.isValid(text, data))

    def test_keysOfOtherSizesAreRefused(self) -> None:
        """A vkey has all bytes of its key."""
        for key in (b"", self.public.key[:-1], self.public.key + b"x", b"x" * 32):
            with self.assertRaisesRegex(Malformed, "has not 1312 bytes"):
                VerifierKey.parse(VerifierKey(self.NAME, self.public.type, key).text)

    def test_oldLibraryIsNamed(self) -> None:
        """Without ML-DSA in the library, a key of it is refused with what is needed."""
        self.patch(_note, "_mlDsa", lambda: None)
        with self.assertRaisesRegex(Malformed, "of ML-DSA-44, which cryptography 48 or later has"):
            VerifierKey.parse(self.public.text)
        self.assertIsNone(MlDsaWitnessKey.of(self.NAME, b"w" * 32))
        self.assertFalse(self.public.isValid(self.head.text, self.signature.signature))


class TreeHeadTests(SynchronousTestCase):
    """
    L{TreeHead}.
    """

    def test_textIsReadBack(self) -> None:
        """A head is what its text says, with further lines."""
        head = MemoryLog(5).head(5)
        self.assertEqual(TreeHead.parse(head.text), head)
        text = head.text + "more\n"
        self.assertEqual(TreeHead.parse(text).extensions, ("more",))
        self.assertEqual(TreeHead.parse(text).text, text)

    def test_malformedTextsAreRefused(self) -> None:
        """A text that is no checkpoint is refused."""
        origin, size, root = MemoryLog(5).head(5).text.splitlines()
        for wrong in (
            "",
            f"{origin}\n",
            f"{origin}\n{size}\n",
            f"\n{size}\n{root}\n",
            f"{origin}\n05\n{root}\n",
            f"{origin}\n-5\n{root}\n",
            f"{origin}\n\u0665\n{root}\n",
            f"{origin}\n{2**63}\n{root}\n",
            f"{origin}\n{size}\n{root[:-4]}\n",
            f"{origin}\n{size}\n{root}\n\nmore\n",
        ):
            with self.assertRaises(Malformed, msg=wrong):
                TreeHead.parse(wrong)
