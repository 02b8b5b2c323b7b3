"""How Sphinx builds the documentation."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from svcbroker import __version__  # noqa: E402

project = "svcbroker"
version = release = __version__
extensions = ["searching", "svctables", "moved", "sphinx_copybutton"]
exclude_patterns = ["_build", "_ext", "examples"]
html_theme = "furo"
html_title = f"svcbroker {release}"
html_static_path = ["_static"]
html_favicon = "../svcbroker/console/page/icon.svg"
html_css_files = ["tables.css"]
html_copy_source = False
html_show_copyright = False
nitpicky = True
smartquotes = False  # it would make a dash of the two in front of an option
highlight_language = "none"

# A console's prompts and what it prints are not copied.
copybutton_exclude = ".linenos, .gp, .go"

svc_search_without = ["decisions/"]
svc_search_finds = {
    "quick start": "tutorial",
    "exactly once": "subscriptions",
    "docker": "install",
    "errors": "errors",
    "100208": "errors",
    "gdpr": "duties",
    "kafka": "ways-in",
    "kubernetes": "install",
    "comparison": "compare",
}

# Pages that are sections of others now, by the labels of these.
svc_moved = [
    "api",
    "audit-trail",
    "authenticator-plugins",
    "authenticators",
    "bundle",
    "clients-tried",
    "coming-from-emqx",
    "coming-from-mosquitto",
    "coming-from-weevent",
    "cometbft-statesync",
    "command-options",
    "feature-plugins",
    "follow",
    "format3",
    "growth",
    "kubernetes",
    "ledger-plugins",
    "lying-operator",
    "mosquitto-tests",
    "packages",
    "recovery",
    "reverse-proxy",
    "simulation",
    "speed",
    "systemd",
    "tracing",
    "witness",
]
