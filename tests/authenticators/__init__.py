"""
Tests for L{svcbroker.authenticators}.
"""
