"""
What goes over the wire in each protocol: how a connection begins, the requests, which are encoded
beforehand, and what little else is asked of a broker.

Each module makes L{Load}s of its protocol; what they publish is L{CONTENT}.
"""
