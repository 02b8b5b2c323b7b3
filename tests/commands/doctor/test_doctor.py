"""
Tests for C{svcbroker doctor}: its options, its output and its exit codes.
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.commands.support import CommandTestCase


class DoctorTests(CommandTestCase):
    """
    From a command line to an exit code.
    """

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()
        self.file = self.root / "broker.toml"
        self.file.write_text(
            f'data-dir = "{self.root}/data"\nhttp = "0"\nstomp = ""\nmqtt = ""\nledger = "memory"\n'
        )

    def doctor(self, *words: str) -> tuple[int, str, str]:
        """The exit code, and what is written to standard output and to standard error."""
        return self.run_("doctor", f"--config={self.file}", *words)

    def test_warningsAreNoFailureUnlessStrict(self) -> None:
        code, output, _ = self.doctor("--faults")
        self.assertEqual(code, 0, output)
        self.assertIn("warning  configuration: faults is on\n", output)
        self.assertIn("           -> remove faults, and restart;", output)
        self.assertIn("good     software: svcbroker", output)
        self.assertTrue(output.splitlines()[-1].startswith("0 problems, "))
        self.assertEqual(self.doctor("--faults", "--strict")[0], 1)

    def test_problemsAreAFailure(self) -> None:
        self.file.write_text(self.file.read_text() + "htpp = 1\nmax-content = 0\nfaults = true\n")
        code, output, _ = self.doctor("--quiet")
        self.assertEqual(code, 1)
        self.assertNotIn("good ", output)
        self.assertIn("line 6: htpp: there is no such setting; did you mean http?", output)
        self.assertIn("line 7: max-content: is not between 1 and 67108864", output)
        # The settings without a mistake count.
        self.assertIn("faults is on", output)

    def test_findingsAreLinesOfJson(self) -> None:
        _, output, _ = self.doctor("--json", "--quiet", "--log-level=debug")
        *findings, summary = map(json.loads, output.splitlines())
        self.assertEqual({*summary}, {"problems", "warnings", "good"})
        found = [each for each in findings if each["finding"] == "log-level is debug"]
        self.assertEqual(len(found), 1)
        self.assertEqual({*found[0]}, {"level", "subject", "finding", "meaning", "remedy"})

    def test_fileThatIsNoTomlIsAProblem(self) -> None:
        self.file.write_text("= 1")
        code, output, _ = self.doctor("--http=", "--stomp=", "--mqtt=", f"--data-dir={self.root}/d")
        self.assertEqual(code, 1)
        self.assertIn("is not TOML", output)

    def test_mistakenOptionIsWrongUsage(self) -> None:
        code, output, errors = self.doctor("--max-content=0")
        self.assertEqual((code, output), (2, ""))
        self.assertEqual(errors, "svcbroker doctor: max-content: is not between 1 and 67108864\n")
