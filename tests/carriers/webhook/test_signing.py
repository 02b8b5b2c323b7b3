"""
Tests for L{svcbroker.carriers.webhook.signing}: the operator's secrets, and signatures.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from base64 import b64encode
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.webhook.signing import (
    MAX_SECRETS,
    NO_SECRETS,
    SecretMissing,
    Secrets,
    WebhookSigner,
    parseSecrets,
)
from tests.certificates import makeAuthority, writeAuthority, writeIdentity
from tests.needed import needPackage

RAW = b"0123456789abcdef"
KEY = bytes(range(24))
LINE = b"whsec_" + b64encode(KEY)


class SecretTests(SynchronousTestCase):
    """
    The operator's file.
    """

    def keys(self, data: bytes) -> list[bytes]:
        """The shared keys of a file."""
        return [secret.key for secret in parseSecrets(data).shared]

    def test_secretsAreLinesOfMinimumLength(self) -> None:
        second = b"fedcba9876543210"
        self.assertEqual(self.keys(RAW), [RAW])
        self.assertEqual(self.keys(b"\n " + RAW + b" \r\n\n" + second + b"\n"), [RAW, second])
        many = (RAW + b"\n") * (MAX_SECRETS + 1)
        for data in (b"", b" \n", b"short", RAW + b"\nshort", many):
            self.assertRaises(ValueError, parseSecrets, data)

    def test_certificatesAreNamedByTheirPaths(self) -> None:
        """Those of files and of directories, relative to the directory of the secrets."""
        root = Path(self.mktemp()).absolute()
        authority = makeAuthority()
        writeIdentity(root / "one.pem", authority.client("one"))
        writeIdentity(root / "own" / "a.pem", authority.client("a"))
        lines = b"one = certificate:one.pem\nalice/two=certificate: %b" % bytes(root / "own")
        secrets = parseSecrets(lines, root)
        self.assertEqual(secrets.certificatesOf("bob"), ["one"])
        self.assertEqual(secrets.certificatesOf("alice"), ["one", "alice/two"])
        self.assertFalse(secrets.shared or secrets.named)
        for certificate in secrets.certificates.values():
            self.assertEqual(repr(certificate), "ClientIdentity()")

    def test_unusableCertificateIsRefused(self) -> None:
        root = Path(self.mktemp())
        authority = makeAuthority()
        for name in ("a", "b"):
            writeIdentity(root / f"{name}.pem", authority.client(name))
        (root / "c").mkdir()
        writeAuthority(root / "c" / "ca.pem", authority)
        for line, message in (
            (b"x = certificate:gone.pem", "cannot be read: .*gone.pem: No such file"),
            (b"x = certificate:.", "several certificates with"),
            (b"x = certificate:c", "no certificate with its private key in files"),
            (b"x = certificate:a.pem\nx = certificate:b.pem", "several certificates of one name"),
        ):
            self.assertRaisesRegex(ValueError, message, parseSecrets, line, root)

    def test_prefixedSecretIsBase64OfItsKey(self) -> None:
        self.assertEqual(self.keys(LINE), [KEY])
        for line in (b"whsec_", b"whsec_*", LINE[:-1], b"whsec_" + b64encode(b"short")):
            self.assertRaises(ValueError, parseSecrets, line)

    def test_namedSecretsMayBeSeveral(self) -> None:
        """Each name may have some; a line with a sign of equality elsewhere is a secret as ever."""
        raw = b"name = without the prefix"
        data = b"\n".join([raw, b"a = " + LINE, b"b=" + LINE, b"a=whsec_" + b64encode(RAW)])
        secrets = parseSecrets(data)
        self.assertEqual([each.key for each in secrets.shared], [raw])
        self.assertEqual(
            {name: [each.key for each in some] for name, some in secrets.named.items()},
            {"a": [KEY, RAW], "b": [KEY]},
        )
        self.assertEqual(parseSecrets(b"a = " + LINE).shared, [])
        for data in (b"a = whsec_*", (b"a = " + LINE + b"\n") * (MAX_SECRETS + 1), b"\xff=" + LINE):
            self.assertRaises(ValueError, parseSecrets, data)

    def test_commentsAreNoSecrets(self) -> None:
        """A secret may begin with the sign, but for the white space behind it."""
        comments = b"# the secrets of the shop\n#\tof 2026\n #\n"
        self.assertEqual(self.keys(comments + LINE + b"\n#" + RAW), [KEY, b"#" + RAW])
        self.assertRaisesRegex(ValueError, "has no secret", parseSecrets, comments)

    def test_malformedNamesAreNoSecrets(self) -> None:
        for line in (b"two words = " + LINE, b"name: " + LINE, b"name = " + LINE + b" # comment"):
            self.assertRaisesRegex(ValueError, "nor NAME = whsec_", parseSecrets, line)

    def test_nameWithAccountIsForThatAccount(self) -> None:
        secrets = parseSecrets(b"a = %b\nann/a = %b" % (LINE, LINE))
        may = [secrets.mayUse(name, account) for name in ("a", "ann/a") for account in ("ann", "")]
        self.assertEqual(may, [True, True, True, False])
        self.assertFalse(secrets.mayUse("b", "ann"))

    def test_reprHidesSecrets(self) -> None:
        """It may get into a log."""
        for line in (RAW, LINE, b"name = " + LINE):
            secrets = parseSecrets(line)
            for each in (WebhookSigner(secrets), secrets):
                self.assertNotIn("0123456789", repr(each))
                self.assertNotIn("whsec_", repr(each))


class SignatureTests(SynchronousTestCase):
    """
    Signatures, which receivers check.
    """

    def sign(self, secrets: Secrets, name: str = "") -> dict[bytes, bytes]:
        """The headers of a request that is signed now."""
        self.now = b"%d" % time.time()
        return dict(WebhookSigner(secrets).sign(name, b"0123abcd-3-7", self.now, b"{}"))

    def test_earlierSignatureIsPinned(self) -> None:
        """The key is the line of the file, also where it is of the new form."""
        secrets = parseSecrets(RAW + b"\nanother secret here\n" + LINE)
        headers = dict(WebhookSigner(secrets).sign("", b"x", b"1700000000", b"{}"))
        digest = hmac.new(LINE, b"1700000000.{}", hashlib.sha256).hexdigest()
        self.assertEqual(
            headers[b"X-Svc-Signature"],
            b"v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e"
            b",v1=ec70245f6ba22d097b7f7fb8d42b58b9c5f961a41fd715cef9f2e315067912e9"
            b",v1=" + digest.encode(),
        )

    def test_signatureOfStandardIsPinned(self) -> None:
        """The example of the Standard Webhooks specification's libraries."""
        secrets = parseSecrets(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
        headers = dict(
            WebhookSigner(secrets).sign(
                "", b"msg_p5jXN8AQM9LWM0D4loKWxJek", b"1614265330", b'{"test": 2432232314}'
            )
        )
        self.assertEqual(
            headers[b"webhook-signature"], b"v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        )

    def test_namedSecretSignsInTheNewFormOnly(self) -> None:
        secrets = parseSecrets(RAW + b"\na = " + LINE)
        headers = self.sign(secrets, "a")
        signed = b"0123abcd-3-7.%b.{}" % self.now
        expected = b64encode(hmac.new(KEY, signed, hashlib.sha256).digest())
        self.assertEqual(headers, {b"webhook-signature": b"v1," + expected})

    def test_missingSecretNeverSendsUnsigned(self) -> None:
        """Only webhooks that name none are sent unsigned where there is none."""
        self.assertEqual(self.sign(NO_SECRETS), {})
        self.assertRaises(SecretMissing, self.sign, parseSecrets(RAW), "a")

    def test_libraryVerifiesEachSecret(self) -> None:
        """The library of Standard Webhooks for Python takes either of two secrets."""
        needPackage("standardwebhooks", "interop")
        from standardwebhooks.webhooks import Webhook, WebhookVerificationError

        headers = {
            "webhook-id": "0123abcd-3-7",
            "webhook-signature": self.sign(parseSecrets(RAW + b"\n" + LINE))[
                b"webhook-signature"
            ].decode(),
            "webhook-timestamp": self.now.decode(),
        }
        for secret in (RAW, LINE.decode()):
            self.assertEqual(Webhook(secret).verify(b"{}", headers), {})
        self.assertRaises(WebhookVerificationError, Webhook(RAW).verify, b"{} ", headers)
