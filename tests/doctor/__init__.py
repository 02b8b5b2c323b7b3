"""
Tests for L{svcbroker.doctor}.
"""
