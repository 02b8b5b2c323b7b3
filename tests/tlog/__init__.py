"""
Tests for L{svcbroker.tlog}.
"""
