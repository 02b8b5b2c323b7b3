"""
Tests for L{svcbroker.access.authenticators}.
"""
