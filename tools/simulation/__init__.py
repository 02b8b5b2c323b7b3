"""
A deterministic simulator of node sets: bad days, by the thousand.

From one seed it runs a whole set of nodes on a virtual clock, with disks and clients, injects
faults, lets up to f of the nodes be traitors, and looks after every step whether what must hold
does. C{docs/simulation.rst} says how to use it; C{python -m tools.simulate} does.

The parts, from the bottom:

 - L{clock}, L{disk}, L{platter}, L{network}: what is simulated below the nodes;
 - L{chain}, L{replicas}, L{host}, L{process}: a node of either world, around the production
   classes;
 - L{faults}, L{embeddedfaults}: what goes wrong, and when; L{plot}, L{traitors}: Byzantine nodes;
 - L{clients}, L{customers}: who publishes; L{judge}: what must hold;
 - L{cluster}, L{embedded}: the two worlds;
 - L{stage}, L{directed}: schedules written by hand;
 - L{mutations}, L{hunt}: protocols broken on purpose, and whether that is noticed;
 - L{runs}, L{report}: many seeds, and what is shown of them.
"""
