"""
Writer of C{svcbroker/commands/helptexts.json}, from which C{--help} shows the texts of all
commands: C{python -m tools.helptexts}, after an option or a text of a command has changed.
"""

from __future__ import annotations

import json

from svcbroker.commands.commandline import HELP_TEXTS, allCommands, describeHelp


def describeAll() -> str:
    """The text of the file: a line for each option, so that changes are merged one by one."""
    found = {
        context.command_path.partition(" ")[2]: describeHelp(command, context)
        for command, context in allCommands()
        if context.parent is not None
    }
    lines = []
    for name, record in found.items():
        sections = ",\n".join(
            f"   {json.dumps(title)}: [\n"
            + ",\n".join(f"    {json.dumps(row)}" for row in rows)
            + "\n   ]"
            for title, rows in record["sections"].items()
        )
        lines.append(
            f" {json.dumps(name)}: {{\n"
            f'  "usage": {json.dumps(record["usage"])},\n'
            f'  "help": {json.dumps(record["help"])},\n'
            f'  "sections": {{\n{sections}\n  }}\n }}'
        )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    HELP_TEXTS.write_text(describeAll(), "utf-8")
