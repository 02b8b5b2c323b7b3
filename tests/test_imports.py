"""
Imports run one way, and what must not know Twisted or the reactor does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import svcbroker

ROOT = Path(svcbroker.__file__).parent

# The rooms of the house, from the bottom to the top. A room may import those on lower floors,
# and itself. Of what lives in C{proofs}, the witness that partners run needs ledgers and Twisted;
# an auditor reads the rest.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("", "_build"),
    ("version",),
    ("errors", "files", "histogram", "probes"),
    ("model",),
    ("chain",),
    ("proofs.tlog",),
    ("proofs",),
    ("proofs.bundle", "proofs.scitt"),
    ("interfaces",),
    ("storage",),
    ("archive",),
    ("net",),
    ("access",),
    ("ledgers",),
    ("broker",),
    ("operations",),
    ("carriers",),
    ("console", "client"),
    ("daemon",),
    ("tap", "proofs.witness"),
    ("commands",),
)
# The commands of ledgers live in the rooms of these, and stand with all commands.
LEDGER_COMMANDS = (
    "svcbroker.ledgers.cometbft.enginecommands",
    "svcbroker.ledgers.testnet",
    "svcbroker.ledgers.evm.evmcommands",
)
# What makes requests of other programs over HTTP, and answers none.
CLIENTS = {
    "svcbroker.broker.transparency.feature",
    "svcbroker.ledgers.cometbft._rpc",
    "svcbroker.ledgers._jsonrpc",
    "svcbroker.ledgers.copy._original",
    "svcbroker.ledgers.evm._evmrpc",
    "svcbroker.net.http",
    "svcbroker.net.endpoints",
}
# The test kit may use the whole house but its roof.
KIT = "testing"


def floorOf(room: str) -> int:
    """How high a room is."""
    for number, rooms in enumerate(FLOORS):
        if room in rooms:
            return number
    raise AssertionError(f"{room} has no place in the house: add it to FLOORS")


def modules() -> Iterator[tuple[str, Path]]:
    """The full name of each module of the package, and its file."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = list(path.relative_to(ROOT.parent).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        yield ".".join(parts), path


@cache
def imported(name: str, path: Path) -> Sequence[str]:
    """The full names of everything that a module imports, at any place in it."""
    return [*readImports(name, path)]


def readImports(name: str, path: Path) -> Iterator[str]:
    """Read what L{imported} gives."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield f"{base}.{alias.name}"


def cycles() -> list[list[str]]:
    """
    The groups of modules that import each other, directly or through others, also for type
    checkers only.
    """
    known = dict(modules())
    targets = {
        name: {
            moduleOf(target, known)
            for target in imported(name, path)
            if target.startswith("svcbroker.")
        }
        for name, path in known.items()
    }
    reached = {name: reachable(name, targets) for name in targets}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in targets
    }
    return sorted(sorted(group) for group in groups if len(group) > 1)


def moduleOf(target: str, known: Mapping[str, Path]) -> str:
    """The module that a full name is, or is a name of."""
    while target not in known:
        target = target.rpartition(".")[0]
    return target


def reachable(start: str, targets: Mapping[str, Set[str]]) -> Set[str]:
    """Everything that a module imports, directly or through others."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = targets[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def roomOf(name: str) -> str:
    """The room that a full name of ours lies in."""
    if name.startswith(LEDGER_COMMANDS):
        return "commands"
    parts = name.split(".")
    room = parts[1] if len(parts) > 1 else ""
    inner = ".".join(parts[1:3])
    if any(inner in rooms for rooms in FLOORS) and "." in inner:
        return inner
    isModule = (ROOT / room).is_dir() or (ROOT / f"{room}.py").is_file() or room == "_build"
    # What is no module is a name that the package itself has.
    return room if isModule else ""


class DirectionTests(SynchronousTestCase):
    """
    The table of rooms.
    """

    def test_roomsImportDownwardsOnly(self) -> None:
        """No room imports one on its own floor or above."""
        wrong = []
        for name, path in modules():
            room = roomOf(name)
            for target in imported(name, path):
                if target.split(".")[0] != "svcbroker":
                    continue
                other = roomOf(target)
                if room == other:
                    continue
                if room == KIT:
                    if other in {"tap", "daemon", "commands"}:
                        wrong.append(f"{name} imports {target}")
                elif other == KIT or floorOf(other) >= floorOf(room):
                    wrong.append(f"{name} imports {target}")
        self.assertEqual(wrong, [])

    def test_noImportCycles(self) -> None:
        """No modules import each other in a circle."""
        self.assertEqual(cycles(), [])

    def test_everyRoomHasAPlace(self) -> None:
        """Each room of the package is in the table."""
        for name, _ in modules():
            room = roomOf(name)
            if room != KIT:
                floorOf(room)

    def test_pureRoomsImportNoIO(self) -> None:
        """The pure rooms import no Twisted, clock, disk or randomness."""
        forbidden = {
            *("twisted", "klein", "treq", "zope"),
            *("os", "io", "socket", "time", "random", "secrets", "threading", "sqlite3"),
            *("pathlib", "tempfile", "subprocess", "asyncio"),
        }
        for name, path in modules():
            if roomOf(name) in {"errors", "histogram", "model", "chain", "proofs", "proofs.tlog"}:
                for target in imported(name, path):
                    self.assertNotIn(target.split(".")[0], forbidden, name)

    def test_onlyTapAndCommandsImportReactor(self) -> None:
        """Only the composition root picks the reactor; what speaks to the reactor is given it."""
        for name, path in modules():
            for target in imported(name, path):
                if target == "twisted.internet.reactor" and roomOf(name) not in {"client"}:
                    isCommand = roomOf(name) == "commands"
                    self.assertTrue(isCommand or name == "svcbroker.tap", name)

    def test_noWebBelowCarriers(self) -> None:
        """What is below the carriers knows no request but its own."""
        for name, path in modules():
            if heightOf(name) < floorOf("carriers") and name not in CLIENTS:
                for target in imported(name, path):
                    self.assertFalse(target.startswith(("twisted.web", "klein", "treq")), name)

    def test_carriersDoNotImportOneAnother(self) -> None:
        """Protocols that run over WebSockets reach HTTP through L{svcbroker.carriers.websocket}."""
        carriers = {"http", "mqtt", "stomp", "webhook"}
        for name, path in modules():
            parts = name.split(".")
            if roomOf(name) == "carriers" and len(parts) > 2 and parts[2] in carriers:
                for target in imported(name, path):
                    others = carriers - {parts[2]}
                    self.assertFalse(
                        target.startswith(tuple(f"svcbroker.carriers.{each}" for each in others)),
                        f"{name} imports {target}",
                    )

    def test_walkSeesRelativeImports(self) -> None:
        """The walk sees modules, and relative imports for what they are."""
        names = dict(modules())
        self.assertIn("svcbroker.tap", names)
        targets = imported("svcbroker.tap", names["svcbroker.tap"])
        self.assertIn("svcbroker.daemon.service.BrokerService", targets)
        self.assertIn("twisted.internet.reactor", targets)
        model = names["svcbroker.model"]
        targets = imported("svcbroker.model", model)
        self.assertIn("svcbroker.model._events.Event", targets)


def heightOf(name: str) -> int:
    """How high a module is; the test kit stands beside the house."""
    room = roomOf(name)
    return len(FLOORS) if room == KIT else floorOf(room)


class LinkTests(SynchronousTestCase):
    """
    Links of docstrings.
    """

    def test_linksNameTheirTargetsInFull(self) -> None:
        """pydoctor knows no names that begin with a dot: the documentation could not be built."""
        for name, path in modules():
            self.assertNotRegex(path.read_text(encoding="utf-8"), r"L\{[^}]*<\.", name)


class LoadingTests(SynchronousTestCase):
    """
    Modules of tests, where what is optional is missing.
    """

    def test_noTestModuleIsSkippedWhileItIsLoaded(self) -> None:
        """To trial this is an error and no skip: what may be missing is asked for in C{setUp}."""
        asking = {"SkipTest", "needPackage", "neededProgram"}
        for path in sorted(Path(__file__).parent.rglob("test_*.py")):
            for statement in ast.parse(path.read_text("utf-8")).body:
                if not isinstance(statement, ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef):
                    names = {each.id for each in ast.walk(statement) if isinstance(each, ast.Name)}
                    self.assertEqual(asking & names, set(), path)
