"""
The directives C{svc-operations}, C{svc-errors} and so on: tables made from the declarations in
the code, so that nothing is written twice.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import TEXTS


class Generated(SphinxDirective):
    """Puts a generated text in its place."""

    def run(self) -> list[nodes.Node]:
        """See C{docutils.parsers.rst.Directive}."""
        # The text follows from the code, so a page with it is read again in every build.
        self.env.note_reread()
        return self.parse_text_to_nodes(TEXTS[self.name](), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """See Sphinx on extensions."""
    for name in TEXTS:
        app.add_directive(name, Generated)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
