"""
The unit as systemd judges it.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

import svcbroker
from tests.needed import neededProgram
from tests.waiting import TIMEOUT

DEPLOY = Path(svcbroker.__file__).parent.parent / "deploy" / "systemd"
UNIT = DEPLOY / "svcbroker.service"
MAX_EXPOSURE = 2.0


class UnitTests(SynchronousTestCase):
    """
    C{deploy/systemd}
    """

    def setUp(self) -> None:
        neededProgram("systemd-analyze")
        if not UNIT.exists():
            raise SkipTest("the units are in the source tree only")

    def run_(self, *command: str | Path) -> str:
        """What a program prints; it has to succeed."""
        done = subprocess.run(
            command,
            check=False,
            timeout=TIMEOUT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_unitIsConfined(self) -> None:
        printed = self.run_(
            *("systemd-analyze", "security", "--offline=true", "--no-pager"),
            *(f"--threshold={MAX_EXPOSURE * 10:.0f}", UNIT),
        )
        self.assertIn("Overall exposure level for svcbroker.service", printed)

    def test_unitsHaveNoMistakes(self) -> None:
        """C{verify} is content; it prints each key that it does not know."""
        root = Path(self.enterContext(tempfile.TemporaryDirectory()))
        text = UNIT.read_text().replace("/usr/bin/svcbroker", "/bin/true")
        (root / UNIT.name).write_text(text)
        shutil.copy(DEPLOY / "svcbroker.socket", root)
        backup = (DEPLOY / "svcbroker-backup.service").read_text()
        (root / "svcbroker-backup.service").write_text(
            backup.replace("/usr/bin/svcbroker", "/bin/true")
        )
        shutil.copy(DEPLOY / "svcbroker-backup.timer", root)
        printed = self.run_(
            *("systemd-analyze", "verify", "--man=no"),
            *sorted(root.iterdir()),
        )
        self.assertNotIn("svcbroker", printed)

    def test_sysusersIsUnderstood(self) -> None:
        printed = self.run_("systemd-sysusers", "--dry-run", DEPLOY / "svcbroker.sysusers")
        self.assertNotIn("Unknown", printed)
