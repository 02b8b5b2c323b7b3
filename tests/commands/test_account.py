"""
Tests for C{svcbroker admin account}: the file of the accounts.
"""

from __future__ import annotations

import io
import json
import stat
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import readAccounts
from svcbroker.access._logins import verifyPassword
from svcbroker.commands import account
from svcbroker.commands.terminal import CommandError
from tests.commands.support import CommandTestCase


class Terminal(io.StringIO):
    """Standard input that is a terminal."""

    def isatty(self) -> bool:
        return True


class AccountTests(CommandTestCase):
    def setUp(self) -> None:
        root = Path(self.mktemp()).absolute()
        root.mkdir()
        self.path = root / "accounts.toml"

    def run_(self, *words: object, stdin: bytes | None = None) -> tuple[int, str, str]:
        return super().run_("account", *words, "--accounts", self.path, stdin=stdin)

    def good(self, *words: object, stdin: bytes | None = None) -> str:
        """What a command writes that succeeds, and tells people of it."""
        code, output, errors = self.run_(*words, stdin=stdin)
        self.assertEqual(code, 0, errors)
        return output

    def add(self, name: str = "ann", *arguments: str) -> None:
        self.good("add", name, *arguments, stdin=b"secret\n")

    def accounts(self) -> Any:
        return readAccounts(self.path).accounts

    def test_addMakesAFileThatItsOwnerAloneReads(self) -> None:
        self.add("ann", "--role=publisher", "--role", "subscriber")
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        ann = self.accounts()["ann"]
        self.assertEqual(ann.roles, ("publisher", "subscriber"))
        self.assertTrue(verifyPassword(ann.password, b"secret"))
        self.assertNotIn("secret", self.path.read_text())

    def test_changesKeepModeCommentsAndLinks(self) -> None:
        self.add()
        self.path.chmod(0o640)
        with self.path.open("a") as file:
            file.write("# Bob comes later.\n")
        real = self.path
        self.path = self.path.with_name("link")
        self.path.symlink_to(real)
        self.add("bob")
        self.assertTrue(self.path.is_symlink())
        self.assertEqual(stat.S_IMODE(real.stat().st_mode), 0o640)
        self.assertIn("# Bob comes later.\n", real.read_text())
        self.assertEqual(sorted(self.accounts()), ["ann", "bob"])
        self.assertEqual(len(list(real.parent.iterdir())), 2)

    def test_anAccountIsAddedOnce(self) -> None:
        self.add()
        self.assertIn("there is an account ann already", self.refused("add", "ann"))

    def test_accountsMayHaveACertificateAlone(self) -> None:
        self.good("add", "ann", "--certificate=device", "--no-password")
        ann = self.accounts()["ann"]
        self.assertEqual((ann.certificate, ann.password), ("device", ""))

    def test_mistakesChangeNothing(self) -> None:
        self.add("ann", "--certificate=device")
        before = self.path.read_bytes()
        for arguments, words in (
            # Before the password is read.
            (("add", "bob", "--role=publishr"), "no role 'publishr', but publisher"),
            (("add", "bob", "--certificate=device"), "[accounts.ann] has the same certificate"),
            (("add", "a b"), "a name is 1 to 128 characters without spaces"),
            (("passwd", "anna"), "there is no account anna; did you mean ann?"),
            (("token", "bob"), "there is no account bob"),
            (("token", "ann", "--expires=soon"), "'soon' is no date such as 2027-01-31"),
            (("remove", "ann", "--token=t"), "ann has no token t"),
            (("may", "ann", "publis", "1", "x"), "did you mean publish?"),
            (("ad", "ann"), "did you mean add?"),
        ):
            self.assertIn(words, self.refused(*arguments))
        self.assertEqual(self.path.read_bytes(), before)

    def test_aFileWithAMistakeIsNotChanged(self) -> None:
        self.path.write_text("[accounts.ann]\nrole = []\n")
        self.assertIn("[accounts.ann] role: there is no such key", self.refused("add", "bob"))

    def test_withoutAFileThereIsNothingToList(self) -> None:
        self.assertIn("cannot read", self.refused("list"))

    def test_passwordsAreReplaced(self) -> None:
        self.add()
        self.good("passwd", "ann", stdin=b"other\nother\n")
        self.assertTrue(verifyPassword(self.accounts()["ann"].password, b"other"))

    def test_tokensAreShownOnce(self) -> None:
        self.add()
        token = self.good("token", "ann", "--label=phone", "--expires=2027-01-31").strip()
        self.assertRegex(token, r"^svct_[A-Za-z0-9_-]{43}$")
        self.assertNotIn(token, self.path.read_text())
        self.good("token", "ann")
        [phone, other] = self.accounts()["ann"].tokens
        self.assertEqual(phone.sha256, sha256(token.encode()).hexdigest())
        self.assertEqual((phone.label, other.label, other.expiresAt), ("phone", "token-1", None))
        self.assertIn("two tokens have this label", self.refused("token", "ann", "--label=phone"))
        self.good("remove", "ann", "--token=phone")
        self.assertEqual([each.label for each in self.accounts()["ann"].tokens], ["token-1"])

    def test_theListHasNoSecrets(self) -> None:
        self.add("ann", "--role=publisher", "--certificate=device")
        self.good("token", "ann", "--expires=2027-01-31T12:00:00Z")
        self.good("add", "bob", "--no-password")
        output = self.good("list")
        self.assertEqual(
            output,
            "ann: roles publisher; a password; certificate device; "
            "token token-1 until 2027-01-31 12:00:00.000 UTC\nbob: no role\n",
        )

    def test_listIsForProgramsToo(self) -> None:
        self.add("ann", "--role=publisher", "--certificate=device")
        self.good("token", "ann", "--expires=2027-01-31T12:00:00Z")
        [ann] = map(json.loads, self.good("list", "--json").splitlines())
        self.assertEqual(
            ann,
            {
                "name": "ann",
                "roles": ["publisher"],
                "password": True,
                "certificate": "device",
                "tokens": [{"label": "token-1", "expiresAt": 1801396800.0}],
            },
        )

    def test_removedAccountsAreGone(self) -> None:
        self.add("ann")
        self.add("bob")
        self.good("remove", "ann")
        self.assertEqual(list(tomllib.loads(self.path.read_text())["accounts"]), ["bob"])

    def test_mayNamesTheDecidingLine(self) -> None:
        self.path.write_text(
            '[accounts.ann]\nroles = ["r"]\n'
            '[roles.r]\ngrants = ["* 1 #", "deny publish 1 %c/#", "publish 2 %u"]\n'
        )
        for arguments, answer in (
            (("publish", "1", "orders/zurich", "--client-id=c"), (0, "yes: * 1 # (role r)\n")),
            (("publish", "1", "c/x", "--client-id=c"), (1, "no: deny publish 1 %c/# (role r)\n")),
            (("publish", "2", "ann", "--client-id=c"), (0, "yes: publish 2 %u (role r)\n")),
            (("admin", "1", "--client-id=c"), (0, "yes: * 1 # (role r)\n")),
            (("admin", "2", "--client-id=c"), (1, "no: no grant names it\n")),
        ):
            self.assertEqual(self.run_("may", "ann", *arguments)[:2], answer)
            code, output, _ = self.run_("may", "ann", *arguments, "--json")
            found = json.loads(output)
            self.assertEqual((code, found["granted"]), (answer[0], not answer[0]))
            self.assertIn(found["reason"], answer[1])


class PasswordTests(SynchronousTestCase):
    def test_aTerminalIsAskedTwice(self) -> None:
        asked: list[str] = []

        def ask(question: str) -> str:
            asked.append(question)
            return "pässword"

        self.assertEqual(account.readPassword("ann", Terminal(), ask), "pässword".encode())
        self.assertEqual(asked, ["Password of ann: ", "The same again: "])

    def test_otherInputIsALineOrTheSameLineTwice(self) -> None:
        for text in ("a b", "a b\n", "a b\na b\n"):
            self.assertEqual(account.readPassword("ann", io.StringIO(text)), b"a b")
        for text in ("", "\n", "a\nb\n", "a\na\na\n", "\na"):
            self.assertRaises(CommandError, account.readPassword, "ann", io.StringIO(text))
