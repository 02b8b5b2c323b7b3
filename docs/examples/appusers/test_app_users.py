"""The authenticator, in memory."""

import sqlite3
from pathlib import Path

from app_users import AppUsersFactory, hashPassword
from twisted.cred.credentials import UsernamePassword
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.access import Access
from svcbroker.errors import NotAuthenticated
from svcbroker.interfaces import (
    Action,
    AuthenticatorContext,
    IAuthenticator,
    IAuthenticatorFactory,
    InvalidDescription,
)


class AppUsersTests(SynchronousTestCase):
    def setUp(self):
        self.file = Path(self.mktemp())
        self.database = sqlite3.connect(self.file)
        self.addCleanup(self.database.close)
        self.execute(
            "CREATE TABLE users (name TEXT PRIMARY KEY, salt BLOB, hash BLOB, grants TEXT)"
        )
        self.add("ann", "publish 1 in/%u\nsubscriber")
        self.hashed = 0

    def execute(self, *statement):
        self.database.execute(*statement)
        self.database.commit()

    def add(self, name, grants):
        hash = hashPassword(b"secret", b"salt")
        self.execute("INSERT INTO users VALUES (?, ?, ?, ?)", (name, b"salt", hash, grants))

    def runInThread(self, f, *args):
        self.hashed += f is hashPassword
        return maybeDeferred(f, *args)

    def start(self):
        """Log-ins as the broker makes them."""
        clock = Clock()
        context = AuthenticatorContext(
            reactor=clock, now=clock.seconds, entropy=bytes, runInThread=self.runInThread
        )
        authenticator = AppUsersFactory().configure({"database": str(self.file)})(context)
        self.assertTrue(verifyObject(IAuthenticator, authenticator))
        self.access = Access([authenticator], clock, clock.seconds)
        return self.access.start()

    def login(self, name, password):
        return self.access.login(UsernamePassword(name, password), "192.0.2.1")

    def test_usersMayDoWhatTheirGrantsSay(self):
        self.successResultOf(self.start())
        ann = self.successResultOf(self.login(b"ann", b"secret"))
        self.assertTrue(ann.may(Action.PUBLISH, "1", "in/ann"))
        self.assertFalse(ann.may(Action.PUBLISH, "1", "in/bob"))

    def test_otherCredentialsAreRefusedAtTheSameCost(self):
        self.successResultOf(self.start())
        for name in (b"ann", b"nosuch", b"\xff"):
            self.failureResultOf(self.login(name, b"wrong"), NotAuthenticated)
        self.assertEqual(self.hashed, 3)

    def test_aReloadChangesGrantsAndEndsAccounts(self):
        self.add("bob", "subscriber")
        self.successResultOf(self.start())
        ann, bob = (self.successResultOf(self.login(n, b"secret")) for n in (b"ann", b"bob"))
        self.execute("UPDATE users SET grants = 'subscribe 1 news' WHERE name = 'ann'")
        self.execute("DELETE FROM users WHERE name = 'bob'")
        self.successResultOf(self.access.reload())
        self.assertFalse(ann.may(Action.PUBLISH, "1", "in/ann"))
        self.assertTrue(bob.isRevoked)

    def test_anErrorChangesNothing(self):
        self.successResultOf(self.start())
        ann = self.successResultOf(self.login(b"ann", b"secret"))
        self.execute("DELETE FROM users")
        self.add("bob", "fly 1 #")
        failure = self.failureResultOf(self.access.reload(), InvalidDescription)
        self.assertIn("the grants of bob: 'fly 1 #'", str(failure.value))
        self.assertFalse(ann.isRevoked)

    def test_aDatabaseThatCannotBeReadIsNamed(self):
        self.execute("DROP TABLE users")
        failure = self.failureResultOf(self.start(), InvalidDescription)
        self.assertIn(f"cannot read {self.file.absolute()}", str(failure.value))

    def test_otherSettingsAreRefused(self):
        factory = AppUsersFactory()
        self.assertTrue(verifyObject(IAuthenticatorFactory, factory))
        for settings in ({}, {"file": "x"}, {"database": "x", "more": "y"}):
            self.assertRaises(InvalidDescription, factory.configure, settings)
