"""
The file of the accounts, and log-ins by it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from twisted.cred.credentials import UsernamePassword
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.access import Access, Accounts, Principal, _logins, grantsOf, readAccounts
from svcbroker.access._accountfile import MAX_FILE_SIZE, parseAccounts
from svcbroker.access._grants import EVERYTHING
from svcbroker.access._logins import checkHash, costOf, hashPassword, unknownHash, verifyPassword
from svcbroker.errors import NotAuthenticated
from svcbroker.interfaces import (
    Action,
    AuthenticatorContext,
    BearerToken,
    ClientCertificate,
    IAuthenticator,
    InvalidDescription,
    Quotas,
)

CHEAP = (
    "$argon2id$v=19$m=8,t=1,p=1$ON4kQXU85esnlKeV4ChPoA$ocC4XUHUTISk8YaHh6JV1ubRIICX7Y6IEpOiym5/xIU"
)
"""The hash of C{secret}, cheap to verify."""
DEARER = (
    "$argon2id$v=19$m=16,t=2,p=1$3SuHrkHUFsIWGqMXZvT7BA$zVi41vPPxig76P5hgIbvtVGTyV2XmHmBPzRdYTVN/cI"
)
"""The hash of C{other}, at another cost."""

TOKEN = "svct_one"
OLD_TOKEN = "svct_old"
FINGERPRINT = "ab" * 32

FILE = f"""
[accounts.ann]
password = "{CHEAP}"
roles = ["sensors", "subscriber"]
certificate = "ann-device"
limits = {{ publishes = 2.5, connections = 1 }}

[[accounts.ann.tokens]]
label = "phone"
sha256 = "{sha256(TOKEN.encode()).hexdigest()}"

[[accounts.ann.tokens]]
label = "old"
sha256 = "{sha256(OLD_TOKEN.encode()).hexdigest()}"
expires = 1970-01-01T00:10:00Z

[accounts."bob@example.org"]
certificate = "{":".join(["AB"] * 32)}"
roles = ["everything"]

[roles.sensors]
grants = ["publish 1 sensors/%u/#", "deny subscribe * sensors/secret"]

[limits]
default = {{ subscriptions = 10 }}
anonymous = {{ publishes = 1 }}
"""


class PasswordTests(SynchronousTestCase):
    def test_aHashIsVerified(self) -> None:
        hash = hashPassword("pässword".encode())
        self.assertEqual(checkHash(hash), hash)
        self.assertTrue(verifyPassword(hash, "pässword".encode()))
        self.assertFalse(verifyPassword(hash, b"password"))
        self.assertTrue(verifyPassword(CHEAP, b"secret"))

    def test_noPasswordHasAnUnknownHash(self) -> None:
        hash = unknownHash(costOf(CHEAP), lambda size: b"x" * size)
        self.assertEqual(checkHash(hash), hash)
        self.assertEqual(costOf(hash), costOf(CHEAP))
        self.assertFalse(verifyPassword(hash, b"secret"))

    def test_longestHashesAreVerified(self) -> None:
        hash = CHEAP + "x" * 34
        self.assertEqual(checkHash(hash), hash)
        self.assertFalse(verifyPassword(hash, b"secret"))

    def test_otherTextsAreNoHashes(self) -> None:
        for text in (
            *("", "secret", "$6$salt$hash", CHEAP[:-30], CHEAP + "\n", CHEAP + "$"),
            *(CHEAP.replace("argon2id", "argon2i"), CHEAP.replace("m=8", "m=1048577")),
            *(
                CHEAP.replace("m=8", "m=7"),
                CHEAP.replace("p=1", "p=2"),
                CHEAP.replace("t=1", "t=0"),
            ),
            CHEAP.replace("p=1", "p=0"),
            CHEAP + "x" * 35,
        ):
            self.assertRaises(ValueError, checkHash, text)


class FileTests(SynchronousTestCase):
    def refused(self, text: str) -> str:
        error = self.assertRaises(
            InvalidDescription, parseAccounts, text.encode(), Path("accounts.toml")
        )
        self.assertNotIn("\n", str(error))
        return str(error)

    def test_accountsHaveWhatTheirTablesSay(self) -> None:
        table = parseAccounts(FILE.encode(), Path("x"))
        ann = table.accounts["ann"]
        self.assertEqual(ann.identity.quotas, Quotas(publishes=2.5, connections=1))
        grants = ann.identity.grants
        for action, topic, isGranted in (
            (Action.PUBLISH, "sensors/ann/x", True),
            (Action.PUBLISH, "sensors/bob/x", False),
            (Action.SUBSCRIBE, "sensors/ann", True),
            (Action.SUBSCRIBE, "sensors/secret", False),
        ):
            self.assertEqual(grants.decide(action, "1", topic, "").isGranted, isGranted, topic)
        self.assertIs(table.accounts["bob@example.org"].identity.grants, EVERYTHING)
        self.assertEqual(table.defaultQuotas, Quotas(subscriptions=10))
        self.assertEqual(table.anonymousQuotas, Quotas(publishes=1))
        self.assertEqual([each.expiresAt for each in ann.tokens], [None, 600.0])

    def test_anEmptyFileHasNoAccounts(self) -> None:
        self.assertEqual(parseAccounts(b"", Path("x")).accounts, {})

    def test_aDayIsOverAtItsEnd(self) -> None:
        text = f'[accounts.a]\ntokens = [{{label="t", sha256="{FINGERPRINT}", expires=1970-01-02}}]'
        [token] = parseAccounts(text.encode(), Path("x")).accounts["a"].tokens
        assert token.expiresAt is not None
        self.assertAlmostEqual(token.expiresAt, 2 * 86400, places=3)

    def test_everythingWithADenialIsNotEverything(self) -> None:
        grants = grantsOf(["everything", "x"], {"x": ("deny publish 1 a",)})
        self.assertFalse(grants.isEverything)
        self.assertFalse(grants.decide(Action.PUBLISH, "1", "a", "").isGranted)
        self.assertTrue(grants.decide(Action.PUBLISH, "1", "$svc/x", "").isGranted)

    def test_mistakesAreNamedWithTheirPlace(self) -> None:
        token = f'{{label="t", sha256="{FINGERPRINT}"}}'
        for text, *words in (
            ("[accounts.ann]\nrole = []", "[accounts.ann] role", "password, tokens", "mean roles?"),
            ("[acounts.ann]", "acounts", "did you mean accounts?"),
            ('[accounts."a b"]', "[accounts]: a name is 1 to 128", "'a b'"),
            ('[accounts."a:b"]', "[accounts]: a name is"),
            ('[accounts."$svc"]', "does not begin with $, not '$svc'"),
            ("accounts = 1", "accounts: must be a table"),
            ("[accounts]\nann = 1", "[accounts] ann: must be a table"),
            ("[accounts.ann]\npassword = 1", "[accounts.ann] password: must be text"),
            ('[accounts.ann]\npassword = "x"', "[accounts.ann] password: must be an argon2id"),
            ('[accounts.ann]\nroles = "x"', "[accounts.ann] roles: must be a list of texts"),
            ('[accounts.ann]\nroles = ["x"]', "no role 'x', but publisher, subscriber"),
            ("[roles.everything]", "[roles.everything] is a built-in role"),
            ('[roles.x]\ngrants = ["publsh 1 a"]', "[roles.x] grants", "'publsh 1 a'", "one of"),
            ("[roles.x]\ngrant = []", "[roles.x] grant", "did you mean grants?"),
            ("[accounts.a]\ntokens = [1]", "[accounts.a] tokens: must be a list of"),
            ('[accounts.a]\ntokens = [{label="t"}]', "[accounts.a] tokens, t: sha256 must be 64"),
            ("[accounts.a]\ntokens = [{}]", "[accounts.a] tokens: each needs a label"),
            ('[accounts.a]\ntokens = [{token="t"}]', "tokens token", "label, sha256, expires"),
            (f"[accounts.a]\ntokens = [{token}, {token}]", "two tokens have this label"),
            (
                f"[accounts.a]\ntokens = [{token}]\n[accounts.b]\ntokens = [{token}]",
                "[accounts.b] tokens, t: sha256: [accounts.a] has the same token",
            ),
            (
                f"[accounts.a]\ntokens = [{token[:-1]}, expires=1}}]",
                "expires must be a date",
            ),
            (
                '[accounts.a]\ncertificate = "x"\n[accounts.b]\ncertificate = "x"',
                "[accounts.b] certificate: [accounts.a] has the same certificate",
            ),
            ("[accounts.a.limits]\npublish = 1", "[accounts.a] limits publish", "mean publishes?"),
            ("[accounts.a.limits]\nconnections = 1.5", "connections: must be a whole number"),
            ("[accounts.a.limits]\nbytes = 0", "bytes: must be a number above 0"),
            ("[accounts.a.limits]\nbytes = inf", "bytes: must be a number above 0"),
            ("[accounts.a.limits]\nbytes = true", "bytes: must be a number above 0"),
            ("[limits.others]\nbytes = 1", "[limits] others", "default, anonymous"),
            ("[limits.default]\nbyte = 1", "[limits] default byte", "did you mean bytes?"),
            ("[accounts.ann", "is not TOML"),
            ("x = " + "[" * 5000, "is not TOML"),
            ("x = " + "9" * 5000, "is not TOML"),
        ):
            message = self.refused(text)
            self.assertTrue(message.startswith("accounts.toml"), message)
            for word in words:
                self.assertIn(word, message)

    def test_otherFilesAreRefused(self) -> None:
        path = Path(self.mktemp())
        error = self.assertRaises(InvalidDescription, readAccounts, path)
        self.assertEqual(str(error), f"cannot read {path}: No such file or directory")
        path.write_bytes(b"\xff")
        error = self.assertRaises(InvalidDescription, readAccounts, path)
        self.assertEqual(str(error), f"{path} is not UTF-8")
        path.write_bytes(b"#" * (MAX_FILE_SIZE + 1))
        error = self.assertRaises(InvalidDescription, readAccounts, path)
        self.assertEqual(str(error), f"{path} is larger than {MAX_FILE_SIZE} bytes")


class AccountsTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.path = Path(self.mktemp())
        self.path.write_text(FILE)
        self.calls: list[tuple[Any, ...]] = []
        self.delayed: list[Callable[[], None]] | None = None
        context = AuthenticatorContext(
            reactor=self.clock,
            now=self.clock.seconds,
            entropy=lambda size: b"e" * size,
            runInThread=self.runInThread,
        )
        self.accounts = Accounts(self.path, readAccounts(self.path), context)
        self.access = Access(
            [self.accounts], self.clock, self.clock.seconds, quotas=self.accounts.quotas
        )
        self.successResultOf(self.access.start())
        self.addCleanup(self.access.stop)

    def runInThread(self, f: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """A thread that works at once, or when a test says so."""
        self.calls.append((f, *args))
        answer: Deferred[Any] = Deferred()

        def work() -> None:
            maybeDeferred(f, *args).chainDeferred(answer)

        if self.delayed is None:
            work()
        else:
            self.delayed.append(work)
        return answer

    def login(self, credentials: Any) -> Deferred[Principal]:
        return self.access.login(credentials, "127.0.0.1")

    def name(self, credentials: Any) -> str:
        return self.successResultOf(self.login(credentials)).name

    def refuse(self, credentials: Any) -> None:
        answer = self.login(credentials)
        self.clock.advance(600)
        self.failureResultOf(answer, NotAuthenticated)

    def write(self, text: str) -> None:
        self.path.write_text(text)
        self.successResultOf(self.access.reload())

    def test_provideTheInterface(self) -> None:
        verifyObject(IAuthenticator, self.accounts)

    def test_differenceTellsWhatAReloadWouldChange(self) -> None:
        """Of each account what of it; nothing has changed then."""

        def told() -> dict[str, tuple[str, list[str]]]:
            found = self.successResultOf(self.accounts.difference())
            return {each.name: (each.kind, [*each.parts]) for each in found}

        self.assertEqual(told(), {})
        text = FILE.replace("publishes = 2.5", "publishes = 9").replace(CHEAP, DEARER, 1)
        text = text.replace("subscriptions = 10", "subscriptions = 11")
        self.path.write_text(text + "\n[accounts.new]\n")
        found = told()
        self.assertEqual(found.pop("ann"), ("changed", ["password", "limits"]))
        self.assertEqual(found.pop("new"), ("added", []))
        self.assertEqual(found.pop(""), ("changed", ["limits"]))
        self.assertEqual(found, {})
        self.assertIsNone(self.accounts.identify("new"))
        self.path.write_text("[accounts.new]\n")
        self.assertEqual(told()["ann"], ("removed", []))
        self.path.write_text("nonsense")
        self.failureResultOf(self.accounts.difference(), InvalidDescription)

    def test_passwordsAreVerifiedInAThread(self) -> None:
        self.delayed = []
        answer = self.login(UsernamePassword(b"ann", b"secret"))
        self.assertNoResult(answer)
        self.delayed.pop()()
        self.assertEqual(self.successResultOf(answer).name, "ann")

    def test_refusalsCostTheSame(self) -> None:
        """Of each cost one hash is verified, whether there is such an account or not."""
        costs: list[str] = []

        def verify(hash: str, password: bytes) -> bool:
            costs.append(costOf(hash))
            return verifyPassword(hash, password)

        self.patch(_logins, "verifyPassword", verify)
        self.write(f'{FILE}[accounts.eve]\npassword = "{DEARER}"\n')
        for name in (b"ann", b"eve", b"nobody", b"bob@example.org", b"\xff"):
            costs.clear()
            self.refuse(UsernamePassword(name, b"wrong"))
            self.assertEqual(sorted(costs), sorted(map(costOf, (CHEAP, DEARER))))
        for name, password, hash in ((b"ann", b"secret", CHEAP), (b"eve", b"other", DEARER)):
            costs.clear()
            self.assertEqual(self.name(UsernamePassword(name, password)), name.decode())
            self.assertEqual(costs, [costOf(hash)])

    def test_tokensNeedNoThread(self) -> None:
        self.delayed = []
        self.assertEqual(self.name(BearerToken(TOKEN)), "ann")
        self.assertEqual(self.name(UsernamePassword(b"ann", TOKEN.encode())), "ann")
        self.assertEqual(self.name(UsernamePassword(b"", TOKEN.encode())), "ann")
        self.assertEqual(self.calls, [])

    def test_tokensOfOthersAreRefused(self) -> None:
        self.refuse(UsernamePassword(b"bob@example.org", TOKEN.encode()))
        self.refuse(BearerToken("svct_two"))
        self.refuse(BearerToken("\udcff"))

    def test_tokensExpire(self) -> None:
        principal = self.successResultOf(self.login(BearerToken(OLD_TOKEN)))
        self.clock.advance(599)
        self.assertFalse(principal.isRevoked)
        self.clock.advance(1)
        self.assertTrue(principal.isRevoked)
        self.refuse(BearerToken(OLD_TOKEN))

    def test_certificatesNameTheirAccount(self) -> None:
        self.assertEqual(self.name(ClientCertificate("ann-device", "00")), "ann")
        self.assertEqual(self.name(ClientCertificate("x", FINGERPRINT)), "bob@example.org")
        self.refuse(ClientCertificate("", "00"))

    def test_aCommonNameIsNoFingerprint(self) -> None:
        self.refuse(ClientCertificate(FINGERPRINT, "00"))

    def test_quotasAreThoseOfTheFile(self) -> None:
        self.assertEqual(self.accounts.quotas(""), Quotas(publishes=1))
        ann = self.successResultOf(self.login(BearerToken(TOKEN)))
        bob = self.successResultOf(self.login(ClientCertificate("", FINGERPRINT)))
        self.assertEqual(ann.usage.quotas.connections, 1)
        self.assertEqual(bob.usage.quotas, Quotas(subscriptions=10))
        self.write(FILE.replace("subscriptions = 10", "subscriptions = 20"))
        self.assertEqual(bob.usage.quotas, Quotas(subscriptions=20))

    def test_reloadChangesWhatAccountsMayDo(self) -> None:
        principals = [
            self.successResultOf(self.login(BearerToken(each))) for each in (TOKEN, OLD_TOKEN)
        ]
        self.write(FILE.replace("sensors/%u/#", "news/#"))
        for principal in principals:
            self.assertTrue(principal.may(Action.PUBLISH, "1", "news/a"))
            self.assertFalse(principal.may(Action.PUBLISH, "1", "sensors/ann/a"))

    def test_reloadWithoutAChangeKeepsAnswers(self) -> None:
        principal = self.successResultOf(self.login(BearerToken(TOKEN)))
        generation = principal.generation
        self.write(FILE.replace(CHEAP, hashPassword(b"other")))
        self.assertEqual(principal.generation, generation)

    def test_connectionsLogInAgainWhenGrantsNeedTheClientId(self) -> None:
        principal = self.successResultOf(self.login(BearerToken(TOKEN)))
        self.write(FILE.replace("sensors/%u/#", "sensors/%c/#"))
        self.assertTrue(principal.isRevoked)
        again = self.successResultOf(self.access.login(BearerToken(TOKEN), "", "c1"))
        self.assertTrue(again.may(Action.PUBLISH, "1", "sensors/c1/x"))

    def test_reloadEndsRemovedAccounts(self) -> None:
        principals = [
            self.successResultOf(self.login(BearerToken(each))) for each in (TOKEN, OLD_TOKEN)
        ]
        self.write(FILE.replace("accounts.ann", "accounts.eve"))
        self.assertEqual([each.isRevoked for each in principals], [True, True])

    def test_reloadEndsLogInsByCredentialsThatAreGone(self) -> None:
        """Others of the account go on."""
        shown = {
            "password": UsernamePassword(b"ann", b"secret"),
            "token": BearerToken(TOKEN),
            "old": BearerToken(OLD_TOKEN),
            "certificate": ClientCertificate("ann-device", "00"),
        }
        changes = {
            "password": (CHEAP, hashPassword(b"other")),
            "token": (sha256(TOKEN.encode()).hexdigest(), "0" * 64),
            "old": ("00:10:00Z", "00:09:00Z"),
            "certificate": ("ann-device", "other-device"),
        }
        for changed, (old, new) in changes.items():
            self.write(FILE)
            principals = {
                name: self.successResultOf(self.login(each)) for name, each in shown.items()
            }
            ended: list[str] = []
            for name, principal in principals.items():
                principal.onEnd(partial(ended.append, name))
            kept = self.access.find("ann")
            self.write(FILE.replace(old, new))
            self.assertEqual(ended, [changed])
            assert kept is not None
            self.assertFalse(kept.isRevoked)
            self.assertIs(kept.usage, principals["token"].usage)

    def test_aFileWithAMistakeChangesNothing(self) -> None:
        principal = self.successResultOf(self.login(BearerToken(TOKEN)))
        self.path.write_text("[accounts.eve]\nrole = []")
        self.failureResultOf(self.access.reload(), InvalidDescription)
        self.assertFalse(principal.isRevoked)
        self.assertEqual(self.name(BearerToken(TOKEN)), "ann")

    def test_aPasswordThatIsReplacedDuringItsCheckIsRefused(self) -> None:
        self.delayed = []
        answer = self.login(UsernamePassword(b"ann", b"secret"))
        check, self.delayed = self.delayed.pop(), None
        self.write(FILE.replace(CHEAP, hashPassword(b"other")))
        check()
        self.failureResultOf(answer, NotAuthenticated)
