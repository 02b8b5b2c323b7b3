"""
Wrong usage of commands that ask a broker: it is told before the broker is asked.
"""

from __future__ import annotations

from pathlib import Path

from tests.commands.support import CommandTestCase


class UsageTests(CommandTestCase):
    def setUp(self) -> None:
        self.path = Path(self.mktemp())
        self.path.write_text("no certificate")

    def refused(self, *words: object, stdin: bytes | None = None) -> str:
        """Why a command line is refused, without the name of the command."""
        return super().refused(*words, stdin=stdin).partition(": ")[2]

    def test_numbersAreRefusedInWords(self) -> None:
        """Something else than a number is told so, and C{nan} is in no range."""
        for argv, line in [
            (("pub", "a", "x", "--expect", "x"), "--expect: 'x' is not a valid whole number"),
            (("sub", "a", "--limit", "1.5"), "--limit: '1.5' is not a valid whole number"),
            (("sub", "a", "--pace", "x"), "--pace: 'x' is not a valid number"),
            (("replay", "a", "--speed", "nan"), "--pace: 'nan' is not a valid number"),
            (("get", "a", "--timeout", "nan"), "--timeout: 'nan' is not a valid number"),
            (("get", "a", "--timeout", "-1"), "--timeout: -1.0 is not in the range 0 to 86400"),
        ]:
            self.assertEqual(self.refused(*argv), line)

    def test_publishThatLostItsKeyIsRefused(self) -> None:
        """An empty key comes of a variable that is not set, and would publish every time."""
        for more in (["x"], ["--lines"]):
            line = self.refused("pub", "a", "--idempotency-key", "", *more)
            self.assertEqual(line, "--idempotency-key is empty")

    def test_extensionsHaveNames(self) -> None:
        for given in ("x", "=x"):
            line = self.refused("pub", "a", "x", "--ext", given)
            self.assertEqual(line, f"--ext: {given!r} is not NAME=VALUE, or comes again")

    def test_filesOfCertificatesAreNamed(self) -> None:
        """The error says which file has no certificate, for every kind of command."""
        (token := Path(self.mktemp())).write_text("token")
        policy = Path(self.mktemp())
        policy.write_text(f"log {LOG}\nquorum none\n")
        url = ("--url", "https://127.0.0.1:9/svcbroker")
        for argv in [
            ("get", "0000000a-1-2", *url),
            ("erase", "0000000a-1-2", "--reason", "x", *url, "--token-file", str(token)),
            ("monitor", "https://127.0.0.1:9/svcbroker/log/1", "--policy", str(policy)),
        ]:
            for option in ("--ca", "--cert"):
                self.assertIn(str(self.path), self.refused(*argv, option, str(self.path)))
                line = self.refused(*argv, option, "absent.pem")
                self.assertEqual(line, "absent.pem: No such file or directory")

    def test_malformedCredentialsAndUrlsAreRefused(self) -> None:
        policy = Path(self.mktemp())
        policy.write_text(f"log {LOG}\nquorum none\n")
        (password := Path(self.mktemp())).write_text("x")
        account = ("--user", "a:b", "--password-file", str(password))
        url = "http://127.0.0.1:9/svcbroker"
        for argv in [
            ("get", "0000000a-1-2", "--url", url),
            ("erase", "0000000a-1-2", "--reason", "x", "--url", url),
            ("monitor", f"{url}/log/1", "--policy", str(policy)),
        ]:
            self.assertIn("has no colon: 'a:b'", self.refused(*argv, *account))
        line = self.refused("monitor", "127.0.0.1:9", "--policy", str(policy), "--once")
        self.assertEqual(line, "'127.0.0.1:9' is no URL such as http://127.0.0.1:8080/svcbroker")


LOG = (
    "svcbroker/14646ea5e046e2cb5b3665bf52344c6ee533295efcc531d164f230d13a98288a+d4635f04"
    "+AcepyZUZ6tzERnAN7qYxFurHZPbFtaPyDbQBxTxrsn+M"
)
