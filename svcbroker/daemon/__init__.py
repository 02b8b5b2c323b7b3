"""
The daemon: configuration, ordered start and stop, ports, the process, logs.
"""
