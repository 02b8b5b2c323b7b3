"""
Counts of the code's structure: modules, lines, names that stand twice, and what a change touches.

``python -m tools.structure`` counts the package in the working directory, ``--at COMMIT...`` the
package of each commit, side by side.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PACKAGE = "svcbroker"
CARRIERS = ("stomp", "mqtt", "webhook")
QUESTIONS = ("What", "How", "Which", "Who", "Where", "When", "Whose", "Why")
CHANGES = 50
"""How many of the last changes with a news fragment are looked at."""

Sources = Mapping[str, str]
"""Paths of modules below the repository, with their texts."""


def run(*command: str) -> bytes:
    """The output of a command of git."""
    return subprocess.run(("git", *command), capture_output=True, check=True).stdout


def sourcesOf(commit: str | None) -> Sources:
    """The modules of the package at a commit, or of the working directory."""
    if commit is None:
        return {str(path): path.read_text("utf-8") for path in Path(PACKAGE).rglob("*.py")}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(run("archive", commit, PACKAGE))) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".py") else None
            if file:
                found[member.name] = file.read().decode()
    return found


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.Constant, ast.AST]]:
    """The docstrings of a module, those of variables included, and what they stand under."""
    for node in ast.walk(tree):
        body = getattr(node, "body", ())
        for child in body if isinstance(body, list) else ():
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                yield child.value, node


def codeLines(text: str, tree: ast.Module) -> set[int]:
    """The numbers of the lines that are neither empty, nor comments, nor docstrings."""
    lines = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    for node, _ in docstrings(tree):
        lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def importLines(tree: ast.Module) -> int:
    """How many lines the imports of a module take."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def functionLengths(tree: ast.Module) -> Iterator[int]:
    """The length of each function, its docstring apart."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1 if ast.get_docstring(node) and node.body[1:] else 0]
            yield (node.end_lineno or 0) - first.lineno + 1


def importers(trees: Mapping[str, ast.Module]) -> Counter[str]:
    """How many modules import each module directly."""
    counted: Counter[str] = Counter()
    for path, tree in trees.items():
        parts = list(Path(path).with_suffix("").parts)
        package = parts[:-1]
        targets = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else []
                full = [*base, *(node.module or "").split(".")] if node.module else base
                for name in [full, *([*full, alias.name] for alias in node.names)]:
                    targets.add("/".join(name) + ".py")
        counted.update(targets & trees.keys())
    return counted


def naming(trees: Mapping[str, ast.Module], carrier: str) -> int:
    """How many modules outside a carrier's room name it in code: in names and in strings."""
    count = 0
    for path, tree in trees.items():
        if f"/{carrier}" in path.lower():
            continue
        ignored = {id(node) for node, _ in docstrings(tree)}
        words: list[str] = []
        for node in ast.walk(tree):
            if id(node) in ignored:
                continue
            for field in ("id", "attr", "name", "arg", "module", "value"):
                value = getattr(node, field, None)
                if isinstance(value, str):
                    words.append(value)
        count += any(carrier in word.lower() for word in words)
    return count


def count(sources: Sources) -> dict[str, str]:
    """All counts of a package."""
    trees = {path: ast.parse(text) for path, text in sources.items()}
    code = {path: len(codeLines(text, trees[path])) for path, text in sources.items()}
    total = sum(code.values())
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    modules = [path for path in trees if not path.endswith("__init__.py")]
    names = Counter(Path(path).stem.lstrip("_") for path in modules)
    shared = sum(number for number in names.values() if number > 1)
    lengths = [length for tree in trees.values() for length in functionLengths(tree)]
    questions = sum(
        node.value.strip().startswith(tuple(f"{word} " for word in QUESTIONS))
        for tree in trees.values()
        for node, _ in docstrings(tree)
        if isinstance(node.value, str)
    )
    used = importers(trees)
    imports = sum(importLines(tree) for tree in trees.values())
    return {
        "modules": str(len(trees)),
        "lines of code": f"{total:,}",
        "median of a module": f"{statistics.median(code.values()):.0f}",
        "modules below 40 lines": str(sum(code[path] < 40 for path in modules)),
        "modules with one importer": str(sum(used[path] == 1 for path in modules)),
        "class names that stand twice": str(sum(number > 1 for number in classes.values())),
        "modules that share a base name": f"{100 * shared / max(len(modules), 1):.0f} %",
        "imports, of the code": f"{100 * imports / total:.1f} %",
        "functions over 60 lines": str(sum(length > 60 for length in lengths)),
        "functions over 80 lines": str(sum(length > 80 for length in lengths)),
        "docstrings that begin with a question word": str(questions),
        **{f"modules that name {name}": str(naming(trees, name)) for name in CARRIERS},
    }


def touched(head: str) -> dict[str, str]:
    """The modules and rooms that the last changes with a news fragment touched: median and p90."""
    log = run("log", "--no-renames", "--format=%x00%H", "--name-only", "-n", "2000", head).decode()
    modules, rooms = [], []
    for entry in log.split("\0")[1:]:
        paths = entry.split("\n")[2:]
        ours = {p for p in paths if p.startswith(f"{PACKAGE}/") and p.endswith(".py")}
        if ours and any(re.match(r"newsfragments/[^.]", path) for path in paths):
            modules.append(len(ours))
            rooms.append(len({path.split("/")[1] for path in ours}))
    result = {}
    for name, numbers in (("modules", modules[:CHANGES]), ("rooms", rooms[:CHANGES])):
        ordered = sorted(numbers)
        middle, high = ordered[len(ordered) // 2], ordered[len(ordered) * 9 // 10]
        result[f"{name} of a change, median and p90"] = f"{middle}, {high}"
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", nargs="+", default=[None], metavar="COMMIT")
    commits: list[str | None] = parser.parse_args(arguments).at
    columns = [{**count(sourcesOf(each)), **touched(each or "HEAD")} for each in commits]
    width = max(map(len, columns[0]))
    for row in columns[0]:
        print(f"{row:{width}}", *(f"{column[row]:>10}" for column in columns))  # noqa: T201


if __name__ == "__main__":
    main()
