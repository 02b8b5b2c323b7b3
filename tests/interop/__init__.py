"""
The daemon as strangers see it: by bytes on a socket, and by clients that others wrote.
"""
