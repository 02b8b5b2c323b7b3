"""
The report: a page of Markdown, with its plots beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import field, frozen

from ._charts import Picture


@frozen(kw_only=True)
class Section:
    """
    A part of the report.

    @ivar title: its heading.
    @ivar text: Markdown that comes first.
    @ivar pictures: each is shown with its table below it.
    """

    title: str
    text: str = ""
    pictures: Sequence[Picture] = field(default=())


def writeReport(directory: Path, name: str, title: str, sections: Sequence[Section]) -> Path:
    """
    Write the page C{NAME.md} and its plots C{plots/*.svg}.

    @param directory: made where it is not there; what an earlier report wrote is replaced.
    @param title: its heading.
    @return: where the page is.
    """
    plots = directory / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.title}")
        if section.text:
            parts.append(section.text)
        for picture in section.pictures:
            (plots / f"{picture.name}.svg").write_text(picture.svg(), "utf-8")
            parts.append(f"![{picture.title}](plots/{picture.name}.svg)")
            if table := picture.table():
                parts.append(table)
    page = directory / f"{name}.md"
    page.write_text("\n\n".join(parts) + "\n", "utf-8")
    return page
