"""
Tests for L{svcbroker.commands.doctor.configurationchecks}.
"""

from __future__ import annotations

from pathlib import Path

from svcbroker.access import parseAccounts
from svcbroker.commands.doctor.configurationchecks import (
    AccountFacts,
    PasswordFileFacts,
    checkAccounts,
    checkAnonymous,
    checkPasswordFile,
)
from svcbroker.net.findings import Finding

from .support import NOW, CheckTestCase

ACCOUNTS = """
[accounts.ann]
password = "$argon2id$v=19$m=65536,t=2,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2g"
roles = ["operator", "publisher"]
"""


class AccountTests(CheckTestCase):
    """
    The accounts and their grants.
    """

    def check(self, text: str, **facts: object) -> list[Finding]:
        """The findings of a file of accounts."""
        path = Path("/etc/accounts.toml")
        table = parseAccounts(text.encode(), path)
        made = AccountFacts(file=path, table=table, **{"groups": ["1"], **facts})  # type: ignore[arg-type]
        return list(checkAccounts(made, NOW))

    def also(self, text: str, **facts: object) -> list[Finding]:
        """The findings of an account beside one that is good."""
        return self.check(ACCOUNTS + text, **facts)

    def test_accountWithPasswordIsGood(self) -> None:
        self.good(self.check(ACCOUNTS), "1 accounts in /etc/accounts.toml")

    def test_fileWithoutAccountsIsAProblem(self) -> None:
        self.fails(self.check("[roles.r]\ngrants = []"), "account add --accounts")

    def test_readableFileIsWarnedOf(self) -> None:
        self.warns(self.check(ACCOUNTS, isReadable=True), "chmod o= /etc/accounts.toml")

    def test_missingOperatorIsWarnedOf(self) -> None:
        text = ACCOUNTS.replace('"operator", ', "")
        self.warns(self.check(text), "no account may operate group 1", "--role operator")

    def test_accountWithoutCredentialsIsWarnedOf(self) -> None:
        self.warns(self.also('[accounts.bob]\nroles = ["publisher"]'), "bob has neither")

    def test_accountWithoutRolesIsWarnedOf(self) -> None:
        self.warns(self.also(ACCOUNTS.splitlines()[2].join(["[accounts.bob]\n", ""])), "no role")

    def test_certificateWithoutEndpointIsWarnedOf(self) -> None:
        text = '[accounts.bob]\nroles = ["publisher"]\ncertificate = "bob"'
        self.warns(self.also(text), "mtls:")
        self.good(self.also(text, takesCertificates=True))

    def test_tokenThatEndsIsWarnedOf(self) -> None:
        token = f'tokens = [{{label = "t", sha256 = "{"1" * 64}", expires = %s}}]'
        text = f'[accounts.bob]\nroles = ["publisher"]\n{token}'
        self.warns(self.also(text % "2026-11-25"), "the token t of bob ends on 2026-11-25")
        self.warns(self.also(text % "2026-11-01"), "has ended on 2026-11-01")
        self.good(self.also(text % "2027-11-01"))

    def test_cheapPasswordIsWarnedOf(self) -> None:
        found = self.check(ACCOUNTS.replace("m=65536", "m=4096"))
        self.warns(found, "cheaper to guess", "a hash of every cost")

    def test_cheapPasswordsOfMosquittoAreWarnedOf(self) -> None:
        file = Path("/etc/mosquitto/passwords")
        self.good(checkPasswordFile(PasswordFileFacts(file=file, users=3)), "3 users in /etc/")
        facts = PasswordFileFacts(file=file, users=3, cheap=["bob", "ann"])
        self.warns(
            checkPasswordFile(facts),
            "has hashes of fewer",
            "iterations: of ann, bob",
            "account add",
        )
        facts = PasswordFileFacts(file=file, users=3, isReadable=True)
        self.warns(checkPasswordFile(facts), "chmod o= /etc/mosquitto/passwords")
        facts = PasswordFileFacts(file=file, error=f"{file}, line 3: is not UTF-8")
        self.fails(checkPasswordFile(facts), "line 3", "does not start")

    def test_grantOfUnknownGroupIsWarnedOf(self) -> None:
        text = '[roles.r]\ngrants = ["publish 7 a", "publish 1 a"]'
        found = self.check(ACCOUNTS.replace("publisher", "r") + text)
        self.warns(found, "'publish 7 a' is about group 7")

    def test_deniedGrantIsWarnedOf(self) -> None:
        text = '[roles.r]\ngrants = ["subscribe 1 a/b", "deny subscribe * a/#", "publish 1 a/b"]'
        found = self.check(ACCOUNTS.replace("publisher", "r") + text)
        self.warns(found, "'subscribe 1 a/b' is denied again by 'deny subscribe * a/#'")

    def test_anonymousOperatorsAreAProblem(self) -> None:
        self.fails(checkAnonymous(["operate *"], ["1"]), "--anonymous")
        self.assertEqual(list(checkAnonymous(["subscribe * #"], ["1"])), [])
