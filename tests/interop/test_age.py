"""
Tests for closed contents with the program C{age}.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs import openContent, padded
from tests.needed import neededProgram
from tests.proofs.test_age import FOREIGN, IDENTITY, RECIPIENT, SECRET, close


class ReferenceTests(SynchronousTestCase):
    """
    The program C{age}.
    """

    def setUp(self) -> None:
        self.age = neededProgram("age")
        self.path = Path(self.mktemp())
        self.path.write_text(SECRET + "\n")

    def test_ageOpensWhatIsClosedHere(self) -> None:
        """The content comes first, and nothing but white space follows it."""
        plain = subprocess.run(
            [self.age, "-d", "-i", str(self.path)],
            input=close(padded(b'{"price": 7}')),
            capture_output=True,
            check=True,
        ).stdout
        self.assertEqual((plain[:13], plain[13:].strip()), (b'{"price": 7}\n', b""))

    def test_whatAgeClosedIsOpened(self) -> None:
        for content in (b"", b"hello\n", bytes(100_000)):
            closed = subprocess.run(
                [self.age, "-r", RECIPIENT], input=content, capture_output=True, check=True
            ).stdout
            self.assertEqual(openContent(closed, FOREIGN, [IDENTITY]), content)
