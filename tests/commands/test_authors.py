"""
Tests for C{svcbroker proof keygen}, C{sign} and C{verify --authors}.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from svcbroker.chain import statement, verifySignature
from svcbroker.commands import inputs
from svcbroker.commands.inputs import readAuthorKey
from svcbroker.commands.terminal import CommandError
from tests.commands.support import CommandTestCase
from tests.needed import neededProgram
from tests.proofs.authored import authored
from tools.vectors.authoredchain import ADA, BERT
from tools.vectors.proofs import DEFAULT
from tools.vectors.signedchain import authorKey

CHAIN = bytes(range(32))
SCRIPT = Path(__file__).parents[2] / "docs" / "examples" / "sign-event.sh"
_PEM, _PKCS8 = Encoding.PEM, PrivateFormat.PKCS8


class AuthorTestCase(CommandTestCase):
    """
    Runs commands in a directory.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()

    def save(self, name: str, data: bytes | str) -> Path:
        """The path of a new file."""
        path = self.directory / name
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def openssl(self, command: str) -> bytes:
        """What openssl writes."""
        return subprocess.run(
            [neededProgram("openssl"), *shlex.split(command)],
            cwd=self.directory,
            check=True,
            capture_output=True,
        ).stdout


class KeygenTests(AuthorTestCase):
    """
    C{svcbroker proof keygen}.
    """

    def test_keyIsAsOpensslMakesIt(self) -> None:
        """openssl reads the key, and writes the same file and the same public key."""
        path = self.directory / "ada.pem"
        public = bytes.fromhex(self.good("keygen", path).strip())
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(self.openssl("pkey -in ada.pem"), path.read_bytes())
        self.assertEqual(self.openssl("pkey -in ada.pem -pubout -outform DER")[-32:], public)

    def test_jsonHasKeyAndFile(self) -> None:
        path = self.directory / "ada.pem"
        made = json.loads(self.good("keygen", "--json", path))
        public = self.openssl("pkey -in ada.pem -pubout -outform DER")[-32:]
        self.assertEqual(made, {"key": public.hex(), "file": str(path)})

    def test_fileIsNotOverwritten(self) -> None:
        """A file that exists stays."""
        path = self.save("ada.pem", "precious")
        self.assertIn("exists already", self.refused("keygen", path))
        self.assertEqual(path.read_text(), "precious")


class SignTests(AuthorTestCase):
    """
    C{svcbroker proof sign}.
    """

    def setUp(self) -> None:
        super().setUp()
        self.key = self.directory / "ada.pem"
        self.public = bytes.fromhex(self.good("keygen", self.key).strip())

    def sign(self, *arguments: object, stdin: bytes | None = None) -> Any:
        """The parameters that a command writes."""
        common = ("--key", self.key, "--chain", CHAIN.hex(), "--topic", "a/b")
        return json.loads(self.good("sign", *common, *arguments, stdin=stdin))

    def check(self, made: Any, content: bytes, key: str | None, **extensions: str) -> None:
        """The parameters are those of an author of an event."""
        named = {name.replace("_", "-"): value for name, value in extensions.items()}
        self.assertEqual(made["author"], self.public.hex())
        signed = statement(CHAIN, "a/b", content, made["signedAt"], key, named)
        self.assertTrue(verifySignature(self.public, signed, bytes.fromhex(made["signature"])))

    def test_contentOfArgumentIsSigned(self) -> None:
        """The content is an argument, and the time is now by default."""
        self.check(self.sign("gr\u00fcn"), "gr\u00fcn".encode(), None)
        self.check(self.sign(""), b"", None)

    def test_contentOfStandardInputIsSigned(self) -> None:
        """Every byte of standard input is part of the content."""
        self.check(self.sign(stdin=b"\xff\x00\n"), b"\xff\x00\n", None)

    def test_allOptionsAreSigned(self) -> None:
        """Time, idempotency key and extensions are part of the statement."""
        options = "--time 7 --idempotency-key order-1 --ext svc-b=1=2 --ext a="
        made = self.sign("x", *options.split())
        self.assertEqual(made["signedAt"], 7)
        self.check(made, b"x", "order-1", svc_b="1=2", svc_a="")
        self.assertEqual(self.sign("x", *options.split()), made)

    def test_wrongUsageIsRefused(self) -> None:
        """Values that no event can have are refused."""
        common = f"--key {self.key} --chain {CHAIN.hex()} --topic t"
        for options, message in (
            (f"--chain {CHAIN.hex()} --topic t", "--key"),
            (f"--key {self.key} --topic t", "--chain"),
            (f"{common} --chain 00", "64 hexadecimal digits"),
            (f"{common} --topic a/#", "topic"),
            (f"{common} --time -1", "--time"),
            (f"{common} --time {2**64}", "64 bits"),
            (f"{common} --time {10**24}", "64 bits"),
            (f"{common} --idempotency-key 'a b'", "--idempotency-key"),
            (f"{common} --ext a", "NAME=VALUE"),
            (f"{common} --ext a=b --ext svc-a=c", "again"),
            (f"{common} one two", "usage: "),
            (f"--key none.pem --chain {CHAIN.hex()} --topic t x", "No such file"),
        ):
            self.assertIn(message, self.refused("sign", *shlex.split(options)))

    def test_keysOfOtherKindsAreRefused(self) -> None:
        """Only Ed25519 private keys sign."""
        common = ("--chain", CHAIN.hex(), "--topic", "t", "x")
        other = X25519PrivateKey.generate().private_bytes(_PEM, _PKCS8, NoEncryption())
        public = authorKey("ada").public_key().public_bytes(_PEM, PublicFormat.SubjectPublicKeyInfo)
        for data in (b"", b"no key", other, public):
            path = self.save("other.pem", data)
            self.assertIn("no Ed25519 private key", self.refused("sign", "--key", path, *common))

    def test_encryptedKeyNeedsPassphrase(self) -> None:
        """The passphrase of an encrypted key is asked for."""
        pair = authorKey("ada")
        encrypted = pair.private_bytes(_PEM, _PKCS8, BestAvailableEncryption(b"secret"))
        path = self.save("encrypted.pem", encrypted)
        read = readAuthorKey(path, lambda prompt: "secret")
        self.assertEqual(read.public, pair.public_key().public_bytes_raw())
        with self.assertRaisesRegex(CommandError, "not the right one"):
            readAuthorKey(path, lambda prompt: "wrong")
        with self.assertRaisesRegex(CommandError, "not the right one"):
            readAuthorKey(path, lambda prompt: "")

    def test_opensslKeysAreRead(self) -> None:
        """Keys of openssl are read, encrypted ones, too."""
        self.openssl("genpkey -algorithm ed25519 -out plain.pem")
        self.openssl("pkey -in plain.pem -aes256 -passout pass:secret -out secret.pem")
        plain = readAuthorKey(self.directory / "plain.pem")
        secret = readAuthorKey(self.directory / "secret.pem", lambda prompt: "secret")
        self.assertEqual(plain.public, secret.public)


class ScriptTests(AuthorTestCase):
    """
    C{docs/examples/sign-event.sh}, which needs openssl and nothing of ours.
    """

    def sign(
        self, *arguments: str, content: bytes, key: str = "", at: str = "", expected: str = ""
    ) -> Any:
        """The parameters that the script prints."""
        environment = {
            "PATH": os.environ["PATH"],
            "IDEMPOTENCY_KEY": key,
            "SIGNED_AT": at,
            "EXPECTED_SEQUENCE": expected,
        }
        command = ["sh", str(SCRIPT), *arguments]
        done = subprocess.run(
            command, input=content, capture_output=True, env=environment, cwd=self.directory
        )
        self.assertEqual(done.stderr, b"")
        return json.loads(done.stdout)

    def test_scriptSignsLikeCommand(self) -> None:
        """With a key of openssl, script and command print the same."""
        self.openssl("genpkey -algorithm ed25519 -out ada.pem")
        path, chain = self.directory / "ada.pem", CHAIN.hex()
        for topic, content, key, extensions, expected in (
            ("t", b"", "", [], ""),
            ("t", b"\xff\0\n\n", "order-1", [], "0"),
            (
                "\x80 b%s\\n~",
                b"x" * 70_000,
                "%d'\"$`\\",
                ["svc-a=", "svc-ab=%s", "svc-\u00e9=b=c\n"],
                "17",
            ),
            (
                "t",
                b"x",
                "",
                ["svc-private-b=2", "svc-private-a=1", "svc-b=", "svc-=\U0001f600"],
                "",
            ),
        ):
            found = self.sign(
                "ada.pem",
                chain,
                topic,
                *extensions,
                content=content,
                key=key,
                at="7",
                expected=expected,
            )
            options = [f"--ext={each}" for each in extensions]
            options += [f"--idempotency-key={key}"] if key else []
            options += [f"--expect={expected}"] if expected else []
            common = ("--key", path, "--chain", chain, "--topic", topic, "--time", "7")
            self.assertEqual(json.loads(self.good("sign", *common, *options, stdin=content)), found)
            public = bytes.fromhex(found["author"])
            named = dict(each.split("=", 1) for each in extensions)
            signed = statement(
                CHAIN,
                topic,
                content,
                7,
                key or None,
                named,
                2 if expected else 1,
                int(expected) if expected else None,
            )
            self.assertTrue(verifySignature(public, signed, bytes.fromhex(found["signature"])))

    def test_timeIsNowByDefault(self) -> None:
        """Without SIGNED_AT the script takes the time of the machine."""
        self.openssl("genpkey -algorithm ed25519 -out ada.pem")
        found = self.sign("ada.pem", CHAIN.hex(), "t", content=b"x")
        self.assertLess(abs(found["signedAt"] / 1000 - time.time()), 60)

    def test_scriptFailsWithoutKey(self) -> None:
        """The script prints nothing where there is no key, or one of another kind."""
        self.openssl("genpkey -algorithm x25519 -out other.pem")
        for name in ("none.pem", "other.pem"):
            done = subprocess.run(
                ["sh", str(SCRIPT), name, CHAIN.hex(), "t"],
                input=b"",
                capture_output=True,
                cwd=self.directory,
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stdout, b"")


class VerifyTests(AuthorTestCase):
    """
    C{svcbroker verify} of events with and without author.
    """

    def setUp(self) -> None:
        super().setUp()
        self.made = authored()
        self.chain = self.made.genesis.chain.hex()

    def verify(self, proof: bytes, *arguments: object) -> str:
        """What the command says of a proof."""
        return self.good(
            "verify", self.save("proof.json", proof), "--chain", self.chain, *arguments
        )

    def test_authorIsNamed(self) -> None:
        """The key that signed is printed, and its name where the file of authors has it."""
        names = self.save("authors.toml", f'"Ada L\u00f6velace" = "{ADA.hex()}"\n')
        signed, other = self.made.events["signed"], self.made.events["signed, bytes"]
        self.assertIn(f"author       key {ADA.hex()}\n", self.verify(signed))
        text = self.verify(signed, "--authors", names)
        self.assertIn(f"author       key {ADA.hex()}, Ada L\u00f6velace\n", text)
        self.assertIn("the signature of this key holds", text)
        text = self.verify(other, "--authors", names)
        self.assertIn(f"key {BERT.hex()}, which has no name here", text)
        found = json.loads(self.verify(signed, "--authors", names, "--json"))
        self.assertEqual((found["author"], found["authorName"]), (ADA.hex(), "Ada L\u00f6velace"))
        found = json.loads(self.verify(other, "--authors", names, "--json"))
        self.assertEqual((found["author"], found["authorName"]), (BERT.hex(), None))

    def test_unsignedEventIsSaidToBe(self) -> None:
        """An event without author is said to be unsigned, of either version."""
        for name in ("no author", "of version 1, with a checkpoint of format 3"):
            text = self.verify(self.made.events[name])
            self.assertIn("author       unsigned: no author has signed this event", text)
            found = json.loads(self.verify(self.made.events[name], "--json"))
            self.assertEqual((found["author"], found.get("signature")), (None, None))

    def test_claimsAreShown(self) -> None:
        """Idempotency key and expected sequence are shown to programs, the key to people."""
        text = self.verify(self.made.events["all"])
        self.assertIn("idempotency  key a!", text)
        self.assertIn("svc-private-name: Ada L\u00f6velace", text)
        found = json.loads(self.verify(self.made.events["all"], "--json"))
        self.assertEqual((found["idempotencyKey"], found["expectedSequence"]), ("a!", 8))

    def test_versionOfStatementIsShown(self) -> None:
        """People are told whether the author has signed the expected number."""
        self.assertIn("the sender may have left", self.verify(self.made.events["signed"]))
        text = self.verify(self.made.events["all"])
        self.assertIn("the expected number 8 is the sender's, not signed", text)
        made = json.loads(DEFAULT.read_text("ascii"))["format4"]
        self.chain = made["chain"]
        for vector in made["events"]:
            if vector["name"] in ("a number", "no number", "erased: all"):
                text = self.verify(json.dumps(vector["proof"]).encode())
                number = {"a number": "the expected number 0", "no number": "no expected number"}
                said = number.get(vector["name"], "the expected number 2")
                self.assertIn(f"statement version 2: signed with {said}\n", text)

    def test_keyOfUnsignedEventIsShown(self) -> None:
        """The idempotency key of an event without author is shown, too."""
        self.assertIn("idempotency  key order-a", self.verify(self.made.events["key"]))

    def test_erasedContentIsSaidToBe(self) -> None:
        """Of an erased event the author is shown, and that the signature is gone."""
        text = self.verify(self.made.erased["signed"])
        self.assertIn("content      erased, or left out of this proof", text)
        self.assertIn(f"author       key {ADA.hex()}", text)
        self.assertIn("its signature was removed with the content", text)
        found = json.loads(self.verify(self.made.erased["signed"], "--json"))
        self.assertEqual((found["author"], found["signature"]), (ADA.hex(), None))
        self.assertNotIn("content", found)

    def test_authorsOfTopicAreNamed(self) -> None:
        """The proof of a topic names its authors and admins."""
        names = self.save("authors.toml", f'ada = "{ADA.hex()}"\n')
        text = self.verify(self.made.topics["signed"], "--authors", names)
        self.assertEqual(text.count(f"key {ADA.hex()}, ada"), 2)
        self.assertIn(f"key {BERT.hex()}, which has no name here", text)
        found = json.loads(self.verify(self.made.topics["signed"], "--json"))
        self.assertEqual(found["authors"]["admins"], [ADA.hex()])

    def test_keysOfFilesAreNamed(self) -> None:
        """A file of authors may name PEM files beside it, with public or private keys."""
        public = authorKey("ada").public_key().public_bytes(_PEM, PublicFormat.SubjectPublicKeyInfo)
        self.save("ada.pem", public)
        self.save("bert.pem", authorKey("bert").private_bytes(_PEM, _PKCS8, NoEncryption()))
        path = self.save("authors.toml", 'ada = "ada.pem"\nbert = "bert.pem"\n')
        self.assertEqual(inputs.readAuthors(path), {ADA: "ada", BERT: "bert"})

    def test_badFilesOfAuthorsAreRefused(self) -> None:
        """A file of authors has a key for each name, and a name for each key."""
        self.save("no.pem", "no key")
        for text, message in (
            ("ada", "no lines"),
            ("\xff", "no lines"),
            ("ada = 1", "not a text"),
            ('ada = "00"', "neither 64 hexadecimal digits nor a PEM file"),
            ('ada = "no.pem"', "no Ed25519 key"),
            (f'ada = "{"00" * 32}"', "not a usable Ed25519 key"),
            (f'ada = "{ADA.hex()}"\nbert = "{ADA.hex()}"', "ada and bert have the same key"),
        ):
            path = self.save("authors.toml", text)
            proof = self.save("proof.json", self.made.events["signed"])
            words = ("verify", proof, "--chain", self.chain, "--authors", path)
            self.assertIn(message, self.refused(*words))
