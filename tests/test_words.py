"""
Names of modules, classes, functions, parameters and attributes use the field's words.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[1]
PLACES = ("svcbroker", "tests", "tools", "benchmarks", "twisted/plugins")

REFUSED = {
    "door": "fast path, gated factory, authorizer",
    "tally": "vote set",
    "letter": "envelope",
    "decider": "replica, validator",
    "sealer": "replica, validator",
    "committee": "replicas, validator set",
    "gathering": "publish batch, submission",
    "keeper": "metadata store",
    "notes": "metadata store",
    "patience": "timeout",
    "trouble": "last error, reason",
    "breathe": "yield to the reactor",
    "surroundings": "dependencies",
    "world": "dependencies",
    "card": "join request",
    "vouch": "attestation",
    "founding": "genesis ceremony",
    "gatherer": "body collector",
    "leaver": "discarding protocol",
    "sieve": "filtering receiver",
    "traitor": "Byzantine replica",
    "vice": "behaviour",
    "platter": "crashing disk",
    "customer": "client",
}
"""Words that no name has, and what the field says instead."""

OF_CLASSES = {
    "around": "dependencies",
    "several": "list",
    "switch": "flag",
    "taken": "submission",
    "together": "publish batch",
}
"""Words that are fine in other names, but name no class."""

PUBLISHED = {"sealer", "sealers", "sealerIndex", "SEALER"}
"""Names of the published interface, and of values that carry them."""

TERMS = re.compile("dead_?letters?", re.IGNORECASE)
"""Terms of the field that have a refused word in them."""

COMPOUNDS = {"sayAgain": "retransmit", "whyNot": "reason", "isAgain": "isRedelivered"}
"""The same for words that are fine alone."""

WORD = re.compile(r"[^\W\d]\w*")
CLASS = re.compile(r"^\s*class\s+(\w+)", re.MULTILINE)
TEST = re.compile(r"^\s*(?:async\s+)?def\s+(test_\w+)", re.MULTILINE)
"""Any word of a module, the names of its classes, and those of its tests."""


@cache
def words(name: str) -> list[str]:
    """The words of a name, in lower case and in the singular."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return sorted({word.lower() for each in found for word in (each, each.rstrip("s"))})


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every name that a module defines, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


@cache
def complaints(name: str) -> list[str]:
    """What to say in place of the refused words of a name."""
    found = [REFUSED[word] for word in words(TERMS.sub("", name)) if word in REFUSED]
    lower = name.lower()
    return found + [COMPOUNDS[each] for each in COMPOUNDS if each.lower() in lower]


def sources() -> Iterator[Path]:
    """Every Python file of the project."""
    for place in PLACES:
        yield from sorted((ROOT / place).rglob("*.py"))


class NameTests(SynchronousTestCase):
    """
    Names in the source tree.
    """

    def test_refusedWordsAreNotUsed(self) -> None:
        """No module and no name in one has a refused word."""
        wrong = []
        for path in sources():
            where = path.relative_to(ROOT)
            text = path.read_text(encoding="utf-8")
            defined = [(0, part) for part in where.with_suffix("").parts]
            # Most modules are not parsed: that takes longer than all the rest.
            if any(map(complaints, set(WORD.findall(text)) - PUBLISHED)):
                defined += names(ast.parse(text))
            for line, name in defined:
                if name not in PUBLISHED:
                    wrong += [f"{where}:{line}: {name}: say {say}" for say in complaints(name)]
            wrong += [
                f"{where}: {name}: say {OF_CLASSES[word]}"
                for name in CLASS.findall(text)
                for word in words(name)
                if word in OF_CLASSES
            ]
        self.assertEqual(wrong, [])

    def test_testNamesHaveSeveralWords(self) -> None:
        """A test's name says what holds, which takes more than one word."""
        wrong = [
            f"{path.relative_to(ROOT)}: {name}"
            for path in sources()
            if path.is_relative_to(ROOT / "tests")
            for name in TEST.findall(path.read_text(encoding="utf-8"))
            if re.fullmatch(r"test_[a-z0-9]+", name)
        ]
        self.assertEqual(wrong, [])

    def test_walkSeesEveryKindOfName(self) -> None:
        """Classes, functions, parameters, variables and attributes are all looked at."""
        tree = ast.parse("class A:\n def b(self, c, *d, e=0, **f): self.g = h = 0; i: int = 0")
        self.assertLessEqual(set("Abcdefghi"), {name for _, name in names(tree)})
        self.assertEqual(complaints("openDoors"), [REFUSED["door"]])
        self.assertEqual(complaints("isAgainSent"), [COMPOUNDS["isAgain"]])
