"""
Tests for L{svcbroker.archive}.
"""
