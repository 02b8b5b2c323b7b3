"""
Tests for svcbroker.
"""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

EXAMPLES = int(os.environ.get("SVCBROKER_EXAMPLES", "40"))
"""How many examples most properties are tried with. C{nox -s examples} tries many more every night,
C{nox -s quick} fewer."""


def examples(usual: int) -> int:
    """
    How many examples a property is tried with.

    @param usual: how many where most are tried with a hundred.
    """
    return max(1, usual * EXAMPLES // 100)


# Time is never tested: a busy machine may be slow. Hypothesis's own profile for CI says the same.
settings.register_profile(
    "svcbroker",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=EXAMPLES,
)
settings.load_profile("svcbroker")

if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    # The tests start some hundred programs, and each would compile all of svcbroker, which takes
    # as long as all the rest of its start. The caches are kept outside of the checkout.
    _caches = tempfile.mkdtemp(prefix="svcbroker-tests-")
    os.environ["PYTHONPYCACHEPREFIX"] = _caches
    atexit.register(shutil.rmtree, _caches, ignore_errors=True)
