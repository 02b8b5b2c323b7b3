"""
Tests for L{svcbroker.bundle}.
"""
