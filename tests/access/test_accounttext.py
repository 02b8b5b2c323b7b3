"""
Changes to the text of a file of accounts.
"""

from __future__ import annotations

import tomllib
from datetime import date
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import AccountText, CannotEdit

TEXT = """\
# The accounts.

[roles.x] # a role
grants = ["publish 1 a"]

# Ann is in sales.
[accounts.ann]
# since May
password = "old" # weak
roles = ["x"]

[accounts."ann".limits]
publishes = 5

# Bob is not.
[accounts.bob]
roles = [
  "x",
]
"""


class AccountTextTests(SynchronousTestCase):
    def test_anAccountIsAddedAtTheEnd(self) -> None:
        text = AccountText(TEXT).addAccount("é f", {"password": "p", "roles": ["x"]})
        self.assertEqual(text, TEXT + '\n[accounts."é f"]\npassword = "p"\nroles = ["x"]\n')
        self.assertEqual(AccountText("").addAccount("a", {}), "[accounts.a]\n")

    def test_onlyThePasswordChanges(self) -> None:
        text = AccountText(TEXT).setPassword("ann", "new")
        self.assertEqual(text, TEXT.replace('"old" # weak', '"new"'))
        text = AccountText(TEXT).setPassword("bob", "new")
        self.assertEqual(text, TEXT.replace("[accounts.bob]", '[accounts.bob]\npassword = "new"'))

    def test_tokensComeAfterTheirAccount(self) -> None:
        text = AccountText(TEXT).addToken("ann", "t", "ab", date(2027, 1, 31))
        added = '\n[[accounts.ann.tokens]]\nlabel = "t"\nsha256 = "ab"\nexpires = 2027-01-31\n'
        self.assertEqual(text, TEXT.replace("\n# Bob", f"{added}\n# Bob"))
        again = AccountText(text).addToken("ann", "u", "cd", None)
        self.assertEqual(AccountText(again).removeToken("ann", "u"), text)
        self.assertEqual(AccountText(text).removeToken("ann", "t"), TEXT)

    def test_anAccountIsRemovedWithItsTables(self) -> None:
        text = AccountText(TEXT).addToken("ann", "t", "ab", None)
        text = AccountText(text).removeAccount("ann")
        self.assertEqual(list(tomllib.loads(text)["accounts"]), ["bob"])
        self.assertIn("# The accounts.", text)
        text = AccountText(text).removeAccount("bob")
        self.assertEqual(tomllib.loads(text), {"roles": {"x": {"grants": ["publish 1 a"]}}})

    def test_otherWaysToWriteAccountsAreLeftAlone(self) -> None:
        for text, change in (
            ("accounts.ann.roles = []", lambda each: each.setPassword("ann", "x")),
            ("accounts = {ann = {}}", lambda each: each.setPassword("ann", "x")),
            ("accounts = {}", lambda each: each.addAccount("ann", {})),
            ("[accounts]\nann = {}", lambda each: each.removeAccount("ann")),
            ("[accounts.ann]\ntokens = []", lambda each: each.addToken("ann", "t", "a", None)),
            (
                '[accounts.ann]\ntokens = [{label = "t"}]',
                lambda each: each.removeToken("ann", "t"),
            ),
            (
                "[accounts.ann]\npassword = '''\n[x]'''",
                lambda each: each.setPassword("ann", "x"),
            ),
        ):
            error = self.assertRaises(CannotEdit, change, AccountText(text))
            self.assertIn("ann", str(error))

    @given(st.lists(st.sampled_from([*TEXT.splitlines(), "", "[[accounts.ann.tokens]]", '"""'])))
    def test_aChangeIsTheWantedOneOrNone(self, lines: list[str]) -> None:
        text = "\n".join(lines)
        try:
            old: Any = tomllib.loads(text)
        except ValueError:
            return
        try:
            new = tomllib.loads(AccountText(text).setPassword("ann", "new"))
        except CannotEdit:
            return
        old["accounts"]["ann"]["password"] = "new"
        self.assertEqual(new, old)
