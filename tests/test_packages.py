"""
Tests for what packages are made of: pinned libraries, the bill of materials, the manual page.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.commandline import COMMANDS
from tests.console.support import VENDOR, originOf
from tools.packages.manpage import escape, manualPage
from tools.packages.sbom import VENDORED, addVendored

ROOT = Path(__file__).parents[1]


class RequirementsTests(SynchronousTestCase):
    """
    C{deploy/requirements.txt}.
    """

    def test_everyDependencyIsPinned(self) -> None:
        """A missing or old pin is mended by C{nox -s pins}."""
        text = (ROOT / "deploy" / "requirements.txt").read_text()
        pins = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for line in project["dependencies"]:
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            self.assertIn(name, pins)
            self.assertIn(pins[name], requirement.specifier)


class MaterialsTests(SynchronousTestCase):
    """
    The bill of materials.
    """

    def test_hashesOfVendoredScriptsAreRight(self) -> None:
        """Each component tells the package of one file, and the hash of the file in it."""
        origins = [originOf(path)[0] for path in VENDOR.glob("*.js")]
        components = json.loads(VENDORED.read_bytes())
        self.assertEqual(
            {(each["name"], each["version"], each["hashes"][0]["content"]) for each in components},
            {(each.package, each.version, each.hash) for each in origins},
        )

    def test_vendoredScriptsAreDependencies(self) -> None:
        """They are added to those of the main component."""
        document = {
            "metadata": {"component": {"bom-ref": "root"}},
            "components": [{"bom-ref": "a"}],
            "dependencies": [{"ref": "a"}, {"ref": "root", "dependsOn": ["a"]}],
        }
        addVendored(document, [{"bom-ref": "b"}])
        self.assertEqual(document["components"], [{"bom-ref": "a"}, {"bom-ref": "b"}])
        self.assertEqual(
            document["dependencies"],
            [{"ref": "a"}, {"ref": "root", "dependsOn": ["a", "b"]}, {"ref": "b"}],
        )


class ManualPageTests(SynchronousTestCase):
    """
    svcbroker(1).
    """

    def test_everyCommandIsDescribed(self) -> None:
        """Commands have a section each, and subcommands too."""
        page = manualPage("2026-11-22")
        for command in COMMANDS:
            name = f"{command.group} {command.name}".strip()
            self.assertEqual(f".SS \\fBsvcbroker {name}\\fR" in page, not command.isHidden)
        self.assertIn(".SS \\fBsvcbroker topic open\\fR", page)
        self.assertIn("\n.B \\-\\-data\\-dir PATH\n", page)
        # Those of nearly all commands are told once.
        self.assertEqual(page.count("\n.B \\-\\-context NAME\n"), 1)

    def test_textIsNoRequest(self) -> None:
        """Lines of help that begin with a dot or a quote are shown as they are."""
        self.assertEqual(escape(".a\\b\n'c"), "\\&.a\\eb\n\\&'c")


class UnitTests(SynchronousTestCase):
    """
    The files of the service.
    """

    def test_packageInstallsEveryFile(self) -> None:
        deploy = Path(__file__).parents[1] / "deploy"
        rules = (deploy / "debian" / "rules").read_text("utf-8")
        for each in (deploy / "systemd").iterdir():
            self.assertIn(f" systemd/{each.name} ", rules)
