"""
Every test of HTTP once more on sites without the fast path: twisted.web and Klein answer the same.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.carriers import test_websocket

from . import (
    test_admin,
    test_asyncapi,
    test_authors,
    test_bodies,
    test_descriptions,
    test_errors,
    test_health,
    test_jsonrpc,
    test_loopback,
    test_openapi,
    test_openrpc,
    test_operator,
    test_origins,
    test_proofs,
    test_publishing,
    test_rest,
    test_site,
    test_traces,
    test_validators,
)
from .support import Client

MODULES = (
    *(
        test_admin,
        test_asyncapi,
        test_authors,
        test_bodies,
        test_descriptions,
        test_errors,
        test_health,
        test_jsonrpc,
        test_loopback,
        test_openapi,
    ),
    *(
        test_openrpc,
        test_operator,
        test_origins,
        test_proofs,
        test_publishing,
        test_rest,
        test_site,
        test_traces,
        test_validators,
        test_websocket,
    ),
)


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


for _module in MODULES:
    globals().update(throughKlein(_module))
