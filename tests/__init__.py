"""
Tests for svcbroker.
"""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

# Time is never tested: a busy machine may be slow. Hypothesis's own profile for CI says the same.
# C{nox -s quick} tries fewer examples.
settings.register_profile(
    "svcbroker",
    settings.default,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=int(os.environ.get("SVCBROKER_EXAMPLES", "100")),
)
settings.load_profile("svcbroker")

if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    # The tests start some hundred programs, and each would compile all of svcbroker, which takes
    # as long as all the rest of its start. The caches are kept outside of the checkout.
    _caches = tempfile.mkdtemp(prefix="svcbroker-tests-")
    os.environ["PYTHONPYCACHEPREFIX"] = _caches
    atexit.register(shutil.rmtree, _caches, ignore_errors=True)
