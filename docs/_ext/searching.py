"""
The search of the documentation: pages that are left out of its index, and words that have to be
found.

C{svc_search_without} is a list of beginnings of document names, C{svc_search_finds} maps what
readers type to the page that they mean. Such a page has the words as a main entry of the index,
C{.. index:: ! words}, which the search ranks before everything else. A build of HTML in which they
do not lead to the page, and to no other, has a warning. Only builds of all pages are looked at: in
others, Sphinx leaves the entries of pages that have not changed out of the search.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def readIndex(path: Path) -> dict[str, Any]:
    """The search index that a build has written."""
    text = path.read_text("utf-8")
    index: dict[str, Any] = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    return index


def mainPages(index: Mapping[str, Any], words: str) -> set[str]:
    """The pages that have some words as a main entry."""
    found = index["indexentries"].get(words, [])
    return {index["docnames"][page] for page, _, isMain in found if isMain}


def complaints(
    index: Mapping[str, Any], finds: Mapping[str, str], without: list[str]
) -> Iterator[str]:
    """A sentence for everything that the search would not find, or should not find."""
    for words, page in finds.items():
        found = sorted(mainPages(index, words))
        if found != [page]:
            yield f"the search for {words!r} has to lead to {page}, not to {found}"
    indexed = {
        page
        for pages in index["terms"].values()
        for page in ([pages] if isinstance(pages, int) else pages)
    }
    for number in sorted(indexed):
        name = index["docnames"][number]
        if name.startswith(tuple(without)):
            yield f"{name} is in the search index"


def leaveOut(app: Sphinx, environment: Any) -> None:
    """Mark the pages that are not searched, as C{:no-search:} at their top does."""
    for name in environment.found_docs:
        if name.startswith(tuple(app.config.svc_search_without)):
            environment.metadata[name]["no-search"] = ""


def note(app: Sphinx, environment: Any, names: list[str]) -> None:
    """Note whether all pages are read."""
    environment.svc_isWhole = set(names) == set(environment.found_docs)


def check(app: Sphinx, error: Exception | None) -> None:
    """Look at the index that was written."""
    from sphinx.util import logging

    if error is None and app.builder.name == "html" and app.env.svc_isWhole:
        index = readIndex(Path(app.outdir) / "searchindex.js")
        for sentence in complaints(
            index, app.config.svc_search_finds, app.config.svc_search_without
        ):
            logging.getLogger(__name__).warning(sentence)


def setup(app: Sphinx) -> dict[str, Any]:
    """See Sphinx on extensions."""
    app.add_config_value("svc_search_without", [], "env")
    app.add_config_value("svc_search_finds", {}, "env")
    app.connect("env-before-read-docs", note)
    app.connect("env-updated", leaveOut)
    app.connect("build-finished", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
