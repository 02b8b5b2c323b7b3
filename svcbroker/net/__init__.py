"""
What carriers and ledgers share above Twisted's transports.
"""
