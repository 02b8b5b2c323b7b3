"""
Tests for L{svcbroker.commands.doctor}.
"""
