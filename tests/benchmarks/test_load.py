"""
Tests for L{svcbroker.commands.bench}: HTTP answers, split by the load in Python.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.bench import Broken, splitAnswer

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: y\r\n\r\n"


class SplitAnswerTests(SynchronousTestCase):
    """
    Splitting answers.
    """

    def test_wholeAnswerGivesBodyAndRest(self) -> None:
        """A whole answer gives its body and what follows it."""
        self.assertEqual(splitAnswer(HEAD + b"bodyrest"), (b"body", b"rest"))

    def test_partialAnswerGivesNothing(self) -> None:
        """An incomplete answer gives nothing."""
        whole = HEAD + b"body"
        for length in range(len(whole)):
            self.assertIsNone(splitAnswer(whole[:length]))

    def test_otherStatusIsAnError(self) -> None:
        """Any status but 200 ends the measurement."""
        self.assertRaises(Broken, splitAnswer, HEAD.replace(b"200", b"500") + b"body")

    def test_answerWithoutLengthIsAnError(self) -> None:
        """An answer of unknown length ends the measurement."""
        self.assertRaises(Broken, splitAnswer, b"HTTP/1.1 200 OK\r\n\r\n")
