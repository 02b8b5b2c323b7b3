"""
Finding events by their content, their author or an extension: an index in files beside the ledger,
made from the log, and the call that asks it.
"""

from ._eventsearch import EventSearch, FindRequest, FoundPage
