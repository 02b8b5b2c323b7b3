"""
The authenticator of mosquitto's files.
"""

from __future__ import annotations

import contextlib
from hashlib import pbkdf2_hmac
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.cred.credentials import UsernamePassword
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.access import UNLIMITED, Principal, Usage
from svcbroker.access.authenticators import mosquitto
from svcbroker.access.authenticators.mosquitto import (
    LineError,
    PasswordHash,
    parseAcl,
    parsePasswords,
)
from svcbroker.errors import NotAuthenticated
from svcbroker.interfaces import Action, BearerToken, Identity, IGroupGrants, InvalidDescription
from svcbroker.model import filterMatches

from .support import AuthenticatorTestCase

# Of the password "secret", made by mosquitto_passwd 2.0.11.
SALTED = (
    "$6$V8vfH6NmIyMmWsMk$b5S9uvTmrSrFxYBTejZ1JqhVL37v7HHlZygfNytkRL7zqluM1L87YZVxGZPKQ588PZxk9"
    "oZdEbeE9eagsnt1QA=="
)
# Of the password "hunter2".
PBKDF2 = (
    "$7$101$E3WJ3U/qoe6sJFwV$2cH+OjgC30RC6c9bnfnL/4GnYqZw9YmwY3SIDqaJh0RngsqdgT48+iviPIgXaFc1Q"
    "UfIE9ZA6mDJ214CMImWFA=="
)

PASSWORDS = f"# users\nann:{SALTED}\n\n bob smith :{PBKDF2}:more\nno colon\n"

ACL = """
# for clients without a name
topic read news/#

user ann
topic orders/#
topic read orders of the day
topic deny orders/secret
user bob smith
topic write in
user ann
topic read more
pattern write devices/%c/state
pattern read users/%u/#
pattern deny users/%u/hidden
"""


class PasswordFileTests(SynchronousTestCase):
    def refusal(self, text: str) -> str:
        return str(self.assertRaises(LineError, parsePasswords, text.encode()))

    def test_bothKindsOfHashesAreVerified(self) -> None:
        hashes = parsePasswords(PASSWORDS.encode())
        self.assertEqual([*hashes], ["ann", "bob smith"])
        self.assertTrue(hashes["ann"].verify(b"secret"))
        self.assertFalse(hashes["ann"].verify(b"hunter2"))
        self.assertTrue(hashes["bob smith"].verify(b"hunter2"))
        self.assertFalse(hashes["bob smith"].verify(b"secret"))

    def test_linesThatCannotBeUsedAreNamed(self) -> None:
        for line, reason in (
            ("x:secret", "is not hashed as $6$ or $7$"),
            ("x:", "is not hashed"),
            ("x:$argon2id$v=19$m=1,t=1,p=1$YWJj$YWJj", "is not hashed"),
            ("x:$6$YWJj", "a $6$ hash has a salt and a hash"),
            ("x:$6$YWJj$YWJj$YWJj", "a $6$ hash has a salt and a hash"),
            ("x:$6$?$YWJj", "is not base64"),
            ("x:$6$YWJj$YWJj", "does not have 64 bytes"),
            ("x:$7$0$YWJj$YWJj", "1 to 10000000 iterations"),
            ("x:$7$99999999$YWJj$YWJj", "1 to 10000000 iterations"),
            ("x:$7$-1$YWJj$YWJj", "1 to 10000000 iterations"),
            ("x:$7", "1 to 10000000 iterations"),
            (f" :{SALTED}", "no name before the colon"),
            (f"ann:{PBKDF2}", "a password of 'ann' already"),
        ):
            self.assertIn(reason, self.refusal(f"ann:{SALTED}\n{line}\n"))
        self.assertIn(
            "line 1: is not UTF-8", str(self.assertRaises(LineError, parsePasswords, b"\xff:x"))
        )

    def test_errorsShowNoHashes(self) -> None:
        text = self.refusal("ann:hunter2")
        self.assertNotIn("hunter2", text)
        self.assertNotIn("QUJD", repr(PasswordHash(0, b"ABC", b"ABC")) + text)

    @given(st.binary(max_size=40))
    def test_anyBytesAreReadOrRefused(self, raw: bytes) -> None:
        for text in (raw, b"a:$" + raw, b"a:$6$" + raw, b"a:$7$" + raw, b"a:$7$1$" + raw):
            with contextlib.suppress(LineError):
                parsePasswords(text)


class AclFileTests(SynchronousTestCase):
    """
    Rules of ACL files that L{tests.interop.test_mosquitto_acl} does not compare with mosquitto.
    """

    def test_onlyPublishOpenAndSubscribeAreGranted(self) -> None:
        grants = parseAcl(b"pattern readwrite #").grants("ann")
        granted = {each for each in Action if grants.decide(each, "1", "t", "").isGranted}
        self.assertEqual(granted, {Action.PUBLISH, Action.OPEN, Action.SUBSCRIBE})
        self.assertEqual({each for each in Action if grants.mayAny(each, None, "#", "")}, granted)
        self.assertFalse(grants.isEverything)

    def test_theLineThatDecidedIsTheReason(self) -> None:
        grants = parseAcl(ACL.encode()).grants("ann")
        for topic, reason in (
            ("orders/1", "topic orders/#"),
            ("orders/secret", "topic deny orders/secret"),
            ("users/ann/x", "pattern read users/%u/#"),
            ("users/ann/hidden", "pattern deny users/%u/hidden"),
            ("news/x", "no line of the ACL file allows it"),
        ):
            decision = grants.decide(Action.SUBSCRIBE, "1", topic, "c")
            self.assertEqual(decision.reason, reason)
        decision = grants.decide(Action.SUBSCRIBE, "1", "users/ann/x", "a+b")
        self.assertIn("has + or #", decision.reason)

    def test_namesThatClientsChooseReachNoTopicsOfTheBroker(self) -> None:
        for sign, name, clientId in (("%c", "ann", "$svc"), ("%u", "$svc", "c")):
            grants = parseAcl(f"pattern readwrite {sign}/#\n".encode()).grants(name)
            for action in (Action.SUBSCRIBE, Action.PUBLISH):
                decision = grants.decide(action, "1", "$svc/audit", clientId)
                self.assertFalse(decision.isGranted)
                self.assertIn("begins with $", decision.reason)
                self.assertFalse(grants.mayAny(action, "1", "$svc/#", clientId))

    def test_patternsGrantNothingByNamesOfSeveralLevels(self) -> None:
        lines = ("read in/%c", "read both", "read out/#", "deny out/%c")
        acl = parseAcl("".join(f"pattern {line}\n" for line in lines).encode())
        for clientId, topic, isGranted in (
            ("a", "in/a", True),
            ("a/b", "in/a/b", False),
            ("a\n", "in/a\n", False),
            # Those without a placeholder count, and those that deny.
            ("a/b", "both", True),
            ("a/b", "out/a/b", False),
        ):
            decision = acl.grants("").decide(Action.SUBSCRIBE, "1", topic, clientId)
            self.assertEqual(decision.isGranted, isGranted, (clientId, topic))

    def test_linesBeforeAllUsersAreForAnonymousClients(self) -> None:
        acl = parseAcl(ACL.encode())
        for name, isGranted in (("", True), ("ann", False), ("other", False)):
            grants = acl.grants(name)
            decision = grants.decide(Action.SUBSCRIBE, "1", "news/x", "c")
            self.assertEqual(decision.isGranted, isGranted)

    def test_patternsWithClientIdsAreForMqttClients(self) -> None:
        """Other clients have none, and an empty level is somebody else's."""
        grants = parseAcl(ACL.encode()).grants("ann")
        self.assertTrue(grants.dependsOnClient)
        for clientId, topic, isGranted in (
            ("c", "devices/c/state", True),
            ("c", "devices/d/state", False),
            ("", "devices//state", False),
        ):
            decision = grants.decide(Action.PUBLISH, "1", topic, clientId)
            self.assertEqual(decision.isGranted, isGranted)
        self.assertFalse(parseAcl(b"user ann\ntopic #").grants("ann").dependsOnClient)

    def test_filtersOfWhichNothingIsGrantedAreRefused(self) -> None:
        grants = parseAcl(ACL.encode()).grants("ann")
        for filter, isGranted in (
            ("#", True),
            ("orders/+", True),
            ("orders/secret", False),
            ("users/+/x", True),
            ("users/ann/hidden", False),
            ("news/#", False),
            ("$svc/#", False),
        ):
            self.assertEqual(grants.mayAny(Action.SUBSCRIBE, None, filter, "c"), isGranted, filter)

    def test_usersWithAnyRightsAreLetIn(self) -> None:
        """Below another tree that begins with C{$}, too: mosquitto does so."""
        for text, isLetIn in (
            ("pattern readwrite $c/#", True),
            ("user ann\ntopic write $c", True),
            ("topic read a", False),
            ("pattern deny #\npattern read a", False),
            ("user ann\ntopic deny $c/#\ntopic read $c/x\n", False),
            ("user ann\ntopic deny $c/+\ntopic read $c/#\n", True),
            ("user bob\ntopic a", False),
            ("pattern read %c/#\n", True),
        ):
            grants = parseAcl(text.encode()).grants("ann")
            principal = Principal(
                Identity(name="ann", grants=grants), Usage(UNLIMITED, float), clientId="c"
            )
            self.assertEqual(principal.seesGroup("1"), isLetIn, text)
        self.assertFalse(grants.seesGroup("1", ""))

    def test_provideTheInterface(self) -> None:
        verifyObject(IGroupGrants, parseAcl(b"").grants("ann"))

    def test_linesThatCannotBeUsedAreNamed(self) -> None:
        for line, reason in (
            ("topic", "there is no topic"),
            ("topic write", ""),
            ("topic grant a", "'grant' is no access; there are read, write, readwrite, deny"),
            ("topic read a+", "whole levels only"),
            ("topic read #/a", "the last level only"),
            ("user", "no name after user"),
            ("users ann", "begins with 'users'"),
        ):
            text = f"topic a\n{line}".encode()
            if reason:
                error = str(self.assertRaises(LineError, parseAcl, text))
                self.assertTrue(error.startswith("line 2: ") and reason in error, error)
            else:
                parseAcl(text)

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["topic", "pattern"]),
                st.sampled_from(["read", "deny"]),
                st.lists(st.sampled_from(["a", "b", "+", "%u"]), min_size=1, max_size=3),
                st.sampled_from(["", "/#"]),
            ),
            max_size=5,
        ),
        st.lists(st.sampled_from(["a", "b", "ann"]), min_size=1, max_size=3),
        st.sampled_from(["#", "+", "+/#", "a/+", "a/#", "ann/+/b"]),
    )
    def test_filtersOfGrantedTopicsAreNotRefused(
        self, lines: list[tuple[str, str, list[str], str]], levels: list[str], filter: str
    ) -> None:
        text = "user ann\n" + "\n".join(
            f"{kind} {access} {'/'.join(parts)}{end}" for kind, access, parts, end in lines
        )
        grants, topic = parseAcl(text.encode()).grants("ann"), "/".join(levels)
        if grants.decide(Action.SUBSCRIBE, "1", topic, "").isGranted:
            self.assertTrue(grants.mayAny(Action.SUBSCRIBE, "1", topic, ""))
            if filterMatches(filter, topic):
                self.assertTrue(grants.mayAny(Action.SUBSCRIBE, "1", filter, ""))

    @given(st.binary(max_size=40))
    def test_anyBytesAreReadOrRefused(self, raw: bytes) -> None:
        for text in (raw, b"topic " + raw, b"user " + raw):
            with contextlib.suppress(LineError):
                parseAcl(text).grants("ann").decide(Action.PUBLISH, "1", "a", "c")


class MosquittoAuthenticatorTests(AuthenticatorTestCase):
    def setUp(self) -> None:
        super().setUp()
        directory = Path(self.mktemp())
        directory.mkdir()
        self.passwords, self.acl = directory / "passwords", directory / "acl"
        self.passwords.write_text(PASSWORDS)
        self.acl.write_text(ACL)
        self.description = f"mosquitto:passwords={self.passwords}:acl={self.acl}"

    def start(self) -> None:
        self.use(self.configure(self.description)(self.context))

    def test_usersLogInByTheirPasswords(self) -> None:
        self.start()
        ann = self.login(UsernamePassword(b"ann", b"secret"), "c")
        self.assertTrue(ann.may(Action.PUBLISH, "1", "devices/c/state"))
        bob = self.login(UsernamePassword(b"bob smith", b"hunter2"))
        self.assertTrue(bob.may(Action.OPEN, "1", "in"))
        self.assertFalse(bob.may(Action.SUBSCRIBE, "1", "in"))
        for credentials in (
            UsernamePassword(b"ann", b"hunter2"),
            UsernamePassword(b"ann", b""),
            UsernamePassword(b"nosuch", b"secret"),
            UsernamePassword(b"", b"secret"),
            UsernamePassword(b"\xff", b"secret"),
            BearerToken("secret"),
        ):
            self.failureResultOf(self.access.login(credentials, "1"), NotAuthenticated)
            self.clock.advance(1000)

    def test_refusalsCostAsMuchAsTheDearestHash(self) -> None:
        """As many iterations are made, in the thread, whatever hash the user has, and for none."""
        dearer = PBKDF2.replace("$101$", "$1000$")
        self.passwords.write_text(f"bob:{PBKDF2}\nbeth:{dearer}\nann:{SALTED}\neve:{SALTED}\n")
        self.start()
        made: list[int] = []

        def count(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
            made.append(iterations)
            return pbkdf2_hmac(name, password, salt, iterations)

        self.patch(mosquitto, "pbkdf2_hmac", count)
        for name in (b"bob", b"beth", b"ann", b"nosuch"):
            made.clear()
            self.calls.clear()
            self.failureResultOf(self.access.login(UsernamePassword(name, b"x"), "1"))
            self.assertEqual((sum(made), len(self.calls)), (1000, 1))
        for name, password, iterations in ((b"bob", b"hunter2", 101), (b"ann", b"secret", 0)):
            made.clear()
            self.login(UsernamePassword(name, password))
            self.assertEqual(sum(made), iterations)

    def test_bothFilesAreReadAgain(self) -> None:
        self.start()
        ann = self.login(UsernamePassword(b"ann", b"secret"))
        bob = self.login(UsernamePassword(b"bob smith", b"hunter2"))
        self.passwords.write_text(f"ann:{SALTED}\n")
        self.acl.write_text("user ann\ntopic read new\n")
        self.assertTrue(ann.may(Action.SUBSCRIBE, "1", "orders/1"))
        self.successResultOf(self.access.reload())
        self.assertTrue(bob.isRevoked)
        self.assertFalse(ann.may(Action.SUBSCRIBE, "1", "orders/1"))
        self.assertTrue(ann.may(Action.SUBSCRIBE, "1", "new"))

    def test_aNewPasswordEndsConnections(self) -> None:
        self.start()
        ann = self.login(UsernamePassword(b"ann", b"secret"))
        self.passwords.write_text(f"ann:{PBKDF2}\n")
        self.successResultOf(self.access.reload())
        self.assertTrue(ann.isRevoked)
        self.failureResultOf(self.access.login(UsernamePassword(b"ann", b"secret"), "1"))
        self.login(UsernamePassword(b"ann", b"hunter2"))

    def test_aFileWithAnErrorChangesNothing(self) -> None:
        self.start()
        ann = self.login(UsernamePassword(b"ann", b"secret"))
        self.passwords.write_text(f"other:{SALTED}\n")
        self.acl.write_text("user ann\ntopic reed orders\n")
        failure = self.failureResultOf(self.access.reload(), InvalidDescription)
        text = f"{self.acl.absolute()}, line 2: 'reed' is no access"
        self.assertTrue(str(failure.value).startswith(text))
        self.assertFalse(ann.isRevoked)
        self.login(UsernamePassword(b"ann", b"secret"))

    def test_descriptionsAreChecked(self) -> None:
        for text, reason in (
            ("mosquitto", "passwords is needed"),
            ("mosquitto:passwords=x", "acl is needed"),
            ("mosquitto:acl=x", "passwords is needed"),
            ("mosquitto:passwords=:acl=x", "passwords: '' is not a file's path"),
            ("mosquitto:acl_file=x", "acl_file: the mosquitto authenticator has no such setting"),
        ):
            error = self.assertRaises(InvalidDescription, self.configure, text)
            self.assertIn(reason, str(error))

    def test_missingFilesAreNamed(self) -> None:
        self.acl.unlink()
        authenticator = self.configure(self.description)(self.context)
        failure = self.failureResultOf(authenticator.start(), InvalidDescription)
        self.assertEqual(
            str(failure.value), f"cannot read {self.acl.absolute()}: No such file or directory"
        )
