"""
pydoctor, in two thirds of its time; or only its warnings, in half of that::

    python docs/apidocs.py --html-output=DIRECTORY
    python docs/apidocs.py --html-writer=apidocs.WarningWriter
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from docutils.frontend import get_default_settings
from docutils.writers.html4css1 import Writer
from pydoctor import epydoc2stan, model
from pydoctor.driver import main
from pydoctor.node2stan import HTMLTranslator
from pydoctor.templatewriter import TemplateWriter, pages


class WarningWriter(TemplateWriter):
    """
    Renders the docstrings, signatures and values of all visible objects, in which everything that
    pydoctor warns of is found, and writes nothing: neither pages nor the index of their words.
    """

    def prepOutputDirectory(self) -> None:
        """Make no directory."""

    def writeSummaryPages(self, system: model.System) -> None:
        """Write none: their texts are those of objects."""

    def writeLinks(self, system: model.System) -> None:
        """Write none."""

    def writeIndividualFiles(self, obs: Iterable[model.Documentable]) -> None:
        """Render each object and all that it contains."""
        for each in obs:
            if each.isVisible:
                _render(each)
                self.writeIndividualFiles(each.contents.values())


def _render(each: model.Documentable) -> None:
    """Do what the page of an object does when it is written, as far as that warns."""
    epydoc2stan.format_docstring(each)
    for extra in each.extra_info:
        epydoc2stan.safe_to_stan(
            extra,
            each.docstring_linker,
            each,
            fallback=lambda *_: epydoc2stan.BROKEN,
            section="extra",
        )
    if isinstance(each, model.Class):
        pages.format_class_signature(each)
    if isinstance(each, model.Function):
        for signed in (each, *each.overloads):
            pages.format_signature(signed)
            pages.format_decorators(signed)
    if isinstance(each, model.Attribute):
        epydoc2stan.type2stan(each)
        pages.format_decorators(each)
        if each.kind in each.system.show_attr_value and each.value is not None:
            epydoc2stan.format_constant_value(each)


if __name__ == "__main__":
    # A style sheet that no page shows would be looked for and read for each docstring.
    HTMLTranslator.settings = get_default_settings(Writer())
    HTMLTranslator.settings.stylesheet_path = None
    sys.exit(main())
