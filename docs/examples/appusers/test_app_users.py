"""The contract of an authenticator, on the users of an application; and what they may do."""

import sqlite3
from contextlib import closing
from pathlib import Path

from app_users import AppUsersFactory, hashPassword
from twisted.cred.credentials import UsernamePassword
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svcbroker.interfaces import Action, IAuthenticatorFactory, InvalidDescription
from svcbroker.testing import AuthenticatorFixture, makeAuthenticatorTests


def execute(file, *statement):
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(*statement)


def makeFixture(test):
    file = Path(test.mktemp())
    row = ("ann", b"salt", hashPassword(b"secret", b"salt"), "publish 1 in/%u\nsubscriber")
    execute(file, "CREATE TABLE users (name PRIMARY KEY, salt BLOB, hash BLOB, grants TEXT)")
    execute(file, "INSERT INTO users VALUES (?, ?, ?, ?)", row)
    return AuthenticatorFixture(
        make=AppUsersFactory().configure({"database": str(file)}),
        name="ann",
        valid=UsernamePassword(b"ann", b"secret"),
        invalid=[UsernamePassword(name, b"other") for name in (b"ann", b"nosuch", b"\xff")],
        remove=lambda: execute(file, "DELETE FROM users"),
        damage=lambda: execute(file, "UPDATE users SET grants = 'fly 1 #'"),
    )


class AppUsersTests(makeAuthenticatorTests(makeFixture)):
    def test_usersMayDoWhatTheirGrantsSay(self):
        grants = self.authenticator.identify("ann").grants
        for topic, isGranted in (("in/ann", True), ("in/bob", False)):
            decision = grants.decide(Action.PUBLISH, "1", topic, "")
            self.assertEqual(decision.isGranted, isGranted)


class AppUsersFactoryTests(SynchronousTestCase):
    def test_otherSettingsAreRefused(self):
        factory = AppUsersFactory()
        self.assertTrue(verifyObject(IAuthenticatorFactory, factory))
        for settings in ({}, {"file": "x"}, {"database": "x", "more": "y"}):
            self.assertRaises(InvalidDescription, factory.configure, settings)
