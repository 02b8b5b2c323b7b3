"""
Histories of clients of real deployments under faults, and their check.

C{python -m tools.consistency} runs four CometBFT nodes with a broker each, or a broker with the
embedded ledger and a copy of it. Clients open, close, publish, read and follow at all of them while
nodes are killed, suspended, wiped and cut off from each other. Each round's history is judged: by
porcupine, whether the writes are linear; by comparison with the logs of all nodes, whether nothing
that was acknowledged is missing, nothing is there twice, all nodes have one order and one set of
ids, each follower got each event once, and a read saw what it named by C{after}.
"""
