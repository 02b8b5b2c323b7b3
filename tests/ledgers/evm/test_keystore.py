"""
Keys that are locked by a password.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.evm import checkInstalled
from svcbroker.ledgers.evm._ethereum import EvmAccount, KeystoreError, KeyUnusable, lock, unlock

skip = checkInstalled() or None

SECRET = "7a28b5ba57c53603b0b07b56bba752f7784bf506fa95edc395f5cf6c7514fe9d"
PASSWORD = b"testpassword"
# The two examples of the Web3 Secret Storage Definition.
EXAMPLES: tuple[dict[str, Any], ...] = (
    {
        "crypto": {
            "cipher": "aes-128-ctr",
            "cipherparams": {"iv": "83dbcc02d8ccb40e466191a123791e0e"},
            "ciphertext": "d172bf743a674da9cdad04534d56926ef8358534d458fffccd4e6ad2fbde479c",
            "kdf": "scrypt",
            "kdfparams": {
                "dklen": 32,
                "n": 262144,
                "p": 8,
                "r": 1,
                "salt": "ab0c7876052600dd703518d6fc3fe8984592145b591fc8fb5c6d43190334ba19",
            },
            "mac": "2103ac29920d71da29f15d75b4a16dbe95cfd7ff8faea1056c33131d846e3097",
        },
        "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6",
        "version": 3,
    },
    {
        "crypto": {
            "cipher": "aes-128-ctr",
            "cipherparams": {"iv": "6087dab2f9fdbbfaddc31a909735c1e6"},
            "ciphertext": "5318b4d5bcd28de64ee5559e671353e16f075ecae9f99c7a79a38af5f869aa46",
            "kdf": "pbkdf2",
            "kdfparams": {
                "c": 262144,
                "dklen": 32,
                "prf": "hmac-sha256",
                "salt": "ae3cd4e7013836a3df6bd7241b12db061dbe2c6785853cce422d148a624ce0bd",
            },
            "mac": "517ead924a9d0dc3124507e3393d175ce3ff7c1e96529c6c555ce9e51205e9b2",
        },
        "id": "3198bc9c-6672-5ab3-d995-4942343ae5b6",
        "version": 3,
    },
)


class KeystoreTests(SynchronousTestCase):
    """Files of keys that a password locks."""

    def test_examplesOfDefinitionAreUnlocked(self) -> None:
        """The examples of the definition give their key, also with capitals in a name."""
        for example in EXAMPLES:
            text = json.dumps(example)
            self.assertEqual(unlock(text.encode(), PASSWORD).hex(), SECRET)
        self.assertEqual(
            unlock(text.replace('"crypto"', '"Crypto"').encode(), PASSWORD).hex(), SECRET
        )

    def test_lockedKeyOpensByItsPassword(self) -> None:
        """A key that is locked is unlocked by its password, and by no other one."""
        account = EvmAccount(os.urandom(32))
        data = lock(account.secret, account.address, b"word", os.urandom)
        self.assertEqual(unlock(data, b"word"), account.secret)
        self.assertEqual(json.loads(data)["address"], account.address.hex())
        self.assertNotIn(account.secret.hex().encode(), data)
        failure = self.assertRaises(KeystoreError, unlock, data, b"other")
        self.assertIn("does not fit", str(failure))

    def test_otherFilesAreRefused(self) -> None:
        """What is no locked key, or asks for too much, is refused at once."""
        good = EXAMPLES[1]
        crypto = good["crypto"]
        changed: tuple[dict[str, Any], ...] = (
            {"version": 1},
            {"crypto": None},
            {"crypto": {**crypto, "cipher": "aes-256-cbc"}},
            {"crypto": {**crypto, "cipherparams": {"iv": "00"}}},
            {"crypto": {**crypto, "ciphertext": "zz"}},
            {"crypto": {**crypto, "kdf": "argon2"}},
            *(
                {
                    "crypto": {
                        **crypto,
                        "kdf": kdf,
                        "kdfparams": {**given, "salt": "00"},
                    }
                }
                for kdf, given in (
                    ("pbkdf2", {"c": 10**12}),
                    ("pbkdf2", {"c": 0}),
                    ("pbkdf2", {"c": 1, "prf": "hmac-md5"}),
                    ("scrypt", {"n": 2**30, "r": 8, "p": 1}),
                    ("scrypt", {"n": 2**14, "r": 8, "p": 2**20}),
                    ("scrypt", {"n": 3, "r": 8, "p": 1}),
                    ("scrypt", {"n": -(2**40), "r": -8, "p": 1}),
                )
            ),
        )
        for changes in changed:
            data = json.dumps({**good, **changes}).encode()
            self.assertRaises(KeystoreError, unlock, data, PASSWORD)
        self.assertRaises(KeystoreError, unlock, b"{", PASSWORD)

    def test_accountsAreLoadedByPasswordFiles(self) -> None:
        """An account's file in that format needs the file of its password."""
        path, password = Path(self.mktemp()), Path(self.mktemp())
        password.write_text("secret word\n")
        made = EvmAccount.create(path, os.urandom, password)
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(EvmAccount.load(path, password).secret, made.secret)
        self.assertIn("password", str(self.assertRaises(KeyUnusable, EvmAccount.load, path)))
        password.write_text("other")
        self.assertRaises(KeyUnusable, EvmAccount.load, path, password)
