"""
Adds the console's vendored scripts to the bill of materials of an environment.

    python3 -m tools.packages.sbom ENVIRONMENT.cdx.json >SVCBROKER.cdx.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

VENDORED = Path(__file__).with_name("vendored.json")
"""The scripts, as components of CycloneDX."""


def addVendored(document: dict[str, Any], vendored: list[dict[str, Any]]) -> None:
    """
    Add components on which the main component depends.

    @param document: a bill of materials of CycloneDX in JSON. It is changed.
    @param vendored: the components.
    """
    document["components"] += vendored
    main = document["metadata"]["component"]["bom-ref"]
    (dependencies,) = (each for each in document["dependencies"] if each["ref"] == main)
    names = [each["bom-ref"] for each in vendored]
    dependencies["dependsOn"] = [*dependencies.get("dependsOn", []), *names]
    document["dependencies"] += [{"ref": name} for name in names]


if __name__ == "__main__":
    document = json.loads(Path(sys.argv[1]).read_bytes())
    addVendored(document, json.loads(VENDORED.read_bytes()))
    sys.stdout.write(json.dumps(document, indent=2) + "\n")
