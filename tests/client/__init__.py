"""
Tests for L{svcbroker.client}.
"""
