"""
Tests for closed contents: what age and pyrage close is opened here, what is closed is padded, and
malformed files are refused within bounds.
"""

from __future__ import annotations

import os
import random
from base64 import b64encode
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import (
    AgeFile,
    AgeIdentity,
    NotForIdentities,
    NotOpened,
    isRecipient,
    openContent,
    padded,
    readIdentities,
    unpadded,
)
from tests.needed import needPackage

FOREIGN = {"svc-encrypted": "age"}
OURS = {**FOREIGN, "svc-padding": "spaces"}

SECRET = "AGE-SECRET-KEY-1XECTHF4HK4YGA0HXYM3PACATYTAM74YEE4J8YY7J8JKEXTCJNZLQUVTDAA"
RECIPIENT = "age1v2mvky4w9xp2cl7a9v2pr27s3wt9uvrfw82tn27l83spqc6mxueq8ydu58"
IDENTITY = AgeIdentity.parse(SECRET)


def close(content: bytes, *recipients: str) -> bytes:
    """Close a content as pyrage does."""
    needPackage("pyrage", "encryption")
    import pyrage

    made: bytes = pyrage.encrypt(
        content, [pyrage.x25519.Recipient.from_str(each) for each in recipients or [RECIPIENT]]
    )
    return made


class KeyTests(SynchronousTestCase):
    def test_identitiesAreReadAsAgeWritesThem(self) -> None:
        text = f"# created: 2026-11-24\n# public key: {RECIPIENT}\n\n{SECRET}\n{SECRET.lower()}\n"
        self.assertEqual([each.public for each in readIdentities(text)], [IDENTITY.public] * 2)

    def test_malformedIdentityIsNotRepeated(self) -> None:
        for text in (SECRET[:-1] + "Q", SECRET[:-1], SECRET[:30].lower() + SECRET[30:], RECIPIENT):
            with self.assertRaises(ValueError) as caught:
                readIdentities(f"{SECRET}\n{text}\n")
            self.assertIn("line 2 is no identity", str(caught.exception))
            self.assertNotIn(text[20:40], str(caught.exception))
        self.assertRaises(ValueError, readIdentities, "# nothing\n")

    def test_representationHasNoSecret(self) -> None:
        self.assertNotIn("private", repr(IDENTITY))

    def test_recipientsHaveCheckDigits(self) -> None:
        self.assertTrue(isRecipient(RECIPIENT))
        changed = [RECIPIENT[:-1] + "q", RECIPIENT.upper(), "age1", "", SECRET.lower(), "ag\xe91q"]
        self.assertEqual([each for each in changed if isRecipient(each)], [])


class PaddingTests(SynchronousTestCase):
    def test_paddingIsTakenOff(self) -> None:
        for content in (b"", b" ", b"\n", b"a \n  ", b"x" * 1000, b"\n" * 5, bytes(300)):
            self.assertEqual(unpadded(padded(content), OURS), content)

    def test_sizesFollowPadme(self) -> None:
        """The sizes are those of the publication of Padme: at most 12 % are added."""
        self.assertEqual([len(padded(bytes(n - 1))) for n in (1, 9, 100, 1025, 70001)],
                         [1, 10, 104, 1088, 71680])  # fmt: skip
        for size in range(1, 5000):
            self.assertLessEqual(len(padded(bytes(size - 1))), size * 1.12 + 0.5)
        self.assertLess(len({len(padded(bytes(size))) for size in range(5000)}), 170)

    def test_malformedPaddingIsRefused(self) -> None:
        """No padding claims a size: one of a terabyte would have to be there."""
        for plain, extensions in (
            (b"", OURS),
            (b"   ", OURS),
            (b"a", OURS),
            (b"a\n", {**FOREIGN, "svc-padding": "1000000000000"}),
        ):
            self.assertRaises(NotOpened, unpadded, plain, extensions)

    def test_foreignContentIsLeftAsItIs(self) -> None:
        self.assertEqual(unpadded(b"a\n  ", FOREIGN), b"a\n  ")


class OpenTests(SynchronousTestCase):
    def test_pyragesFilesAreOpened(self) -> None:
        """Files of all sizes around pieces of 64 KiB, closed to several, are opened."""
        others = [str(self.newRecipient()) for _ in range(3)]
        for size in (0, 1, 65535, 65536, 65537, 131072, 200_000):
            content = os.urandom(size)
            data = close(content, *others, RECIPIENT)
            self.assertEqual(openContent(data, FOREIGN, [IDENTITY]), content)

    def newRecipient(self) -> Any:
        """A recipient of somebody else."""
        needPackage("pyrage", "encryption")
        import pyrage

        return pyrage.x25519.Identity.generate().to_public()

    def test_othersContentStaysClosed(self) -> None:
        data = close(b"x", str(self.newRecipient()))
        self.assertRaises(NotForIdentities, openContent, data, FOREIGN, [IDENTITY])
        self.assertRaises(NotForIdentities, openContent, data, FOREIGN, [])

    def test_changedBytesAreRefused(self) -> None:
        """Whichever bit of a file is changed, or wherever it is cut, nothing is opened."""
        data = close(b"content", RECIPIENT)
        rng = random.Random(1)
        for place in range(len(data)):
            changed = bytearray(data)
            changed[place] ^= 1 << rng.randrange(8)
            self.assertRaises(NotOpened, openContent, bytes(changed), FOREIGN, [IDENTITY])
            self.assertRaises(NotOpened, openContent, data[:place], FOREIGN, [IDENTITY])
        self.assertRaises(NotOpened, openContent, data + b"x", FOREIGN, [IDENTITY])

    def test_longContentIsNotReordered(self) -> None:
        """The pieces of a content stay in their order, and the last one cannot be left out."""
        data = close(bytes(200_000))
        start = len(data) - 200_000 - 4 * 16
        size = 65536 + 16
        first, second = data[start : start + size], data[start + size : start + 2 * size]
        rest = data[start + 2 * size :]
        for changed in (second + first + rest, first + second, first + rest):
            with self.assertRaises(NotOpened):
                openContent(data[:start] + changed, FOREIGN, [IDENTITY])

    def test_refusalsSayWhy(self) -> None:
        data = close(b"content")
        mac = data.index(b"--- ") + 4
        wrong = b"B" if data[mac : mac + 1] == b"A" else b"A"
        line = b64encode(bytes(32)).rstrip(b"=")
        many = b"-> X25519 " + line + b"\n" + line + b"\n"
        end = b"--- " + line + b"\n" + bytes(40)
        start = b"age-encryption.org/v1\n"
        for changed, why in (
            (data[: mac - 20], "its header is cut"),
            (data.replace(b"/v1", b"/v2"), "age has another version there"),
            (b"hello", "it is no file of age"),
            (data[:mac] + wrong + data[mac + 1 :], "the MAC of its header does not hold"),
            (start + many * 300 + end, "more than 256 recipients"),
            (start + many * 10_000 + end, "more than 256 recipients"),
            (start + b"-> scrypt " + line + b" 60\n" + line + b"\n" + end, "with a passphrase"),
            (start + b"-> X25519 " + line + b"\n\n" + end, "a recipient of its header"),
            (start + many + end, "a recipient of its header"),
            (start + b"->  a\n\n" + end, "a line of its header"),
            (start + b"-> a\n" + b"A" * 65 + b"\n" + end, "a line of its header"),
            (start + b"-> a\nAB\n" + end, "canonical base64"),
            (data[:-1], "its content was changed, or is cut"),
        ):
            with self.assertRaises(NotOpened) as caught:
                openContent(changed, FOREIGN, [IDENTITY])
            self.assertIn(why, str(caught.exception))

    def test_unknownKindsAreRefused(self) -> None:
        for extensions in ({}, {"svc-encrypted": "pgp"}):
            self.assertRaises(NotOpened, openContent, b"", extensions, [IDENTITY])

    def test_unknownRecipientsAreLeftOut(self) -> None:
        """A recipient of a kind that is unknown here does not hinder the others."""
        for _ in range(20):
            # rage adds one to some files by chance.
            self.assertEqual(openContent(close(b"x"), FOREIGN, [IDENTITY]), b"x")

    def test_keyOpensItsFileOnly(self) -> None:
        one, other = AgeFile.parse(close(b"one")), AgeFile.parse(close(b"other"))
        key = one.fileKey([IDENTITY])
        self.assertEqual(one.open(key), b"one")
        self.assertRaises(NotOpened, other.open, key)
