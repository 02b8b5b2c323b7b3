"""
Pages that have become sections of others: the old address leads to the section.

C{svc_moved} lists their names. Each is the label of its section now, C{.. _name:}; a name without
such a label is a warning. Only builds of HTML write something.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="0; url={target}"><link rel="canonical" href="{target}">
</head><body><p>This page is now <a href="{target}">a section of another</a>.</p></body></html>
"""


def redirections(app: Sphinx) -> Iterator[tuple[str, str]]:
    """The name of each page that has moved, and where it is now; empty where it is nowhere."""
    labels = app.env.domains.standard_domain.anonlabels
    for name in app.config.svc_moved:
        page, anchor = labels.get(name, ("", ""))
        yield name, f"{app.builder.get_target_uri(page)}#{anchor}" if page else ""


def write(app: Sphinx, error: Exception | None) -> None:
    """Write a page for each old address."""
    from sphinx.util import logging

    if error is not None or app.builder.name != "html":
        return
    for name, target in redirections(app):
        if not target:
            logging.getLogger(__name__).warning(f"{name} has moved, but no section has its label")
        (Path(app.outdir) / f"{name}.html").write_text(PAGE.format(target=target), "utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """See Sphinx on extensions."""
    app.add_config_value("svc_moved", [], "env")
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
