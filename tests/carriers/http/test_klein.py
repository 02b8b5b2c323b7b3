"""
Every test of HTTP once more on sites without the fast path: twisted.web and Klein answer the same.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from .support import Client

MODULES = (
    *("admin", "asyncapi", "authors", "bodies", "descriptions", "errors", "health", "jsonrpc"),
    *("loopback", "openapi", "openrpc", "operator", "origins", "proofs", "publishing", "rest"),
    *("site", "traces", "validators"),
)
"""The modules of this package whose tests ask a site."""


class _ThroughKlein:
    """Mixin: the clients of a test case use sites without the fast path."""

    patch: Any

    def setUp(self) -> Any:
        self.patch(Client, "hasFastPath", False)
        return super().setUp()  # type: ignore[misc]


def throughKlein(module: ModuleType) -> dict[str, type]:
    """The test cases of a module, to be run through Klein alone."""
    return {
        f"{name}ThroughKlein": type(f"{name}ThroughKlein", (_ThroughKlein, each), {})
        for name, each in vars(module).items()
        if isinstance(each, type)
        and issubclass(each, SynchronousTestCase)
        and each.__module__ == module.__name__
        # These ask no site.
        and name != "PropertyTests"
    }


for _name in MODULES:
    globals().update(throughKlein(import_module(f"tests.carriers.http.test_{_name}")))
globals().update(throughKlein(import_module("tests.carriers.test_websocket")))
