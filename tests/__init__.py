"""
Tests for svcbroker.
"""

from hypothesis import HealthCheck, settings

# Time is never tested: a busy machine may be slow. Hypothesis's own profile for CI says the same.
settings.register_profile(
    "svcbroker", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("svcbroker")
