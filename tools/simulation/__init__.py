"""
A deterministic simulator of replica sets under faults.

From one seed it runs a whole replica set with its disks and clients on a virtual clock, injects
faults, makes up to f of the replicas Byzantine, and checks the invariants after every step.
C{docs/testing.rst} explains its use; C{python -m tools.simulate} runs it.

The modules, from the bottom:

 - L{clock}, L{disk}, L{crashingdisk}, L{network}: the simulated environment;
 - L{chain}, L{replicas}, L{host}, L{process}: a replica of either system, around the production
   classes;
 - L{faults}, L{embeddedfaults}: the faults and their schedules;
 - L{adversary}, L{behaviours}, L{byzantine}: Byzantine replicas;
 - L{clients}: the clients; L{judge}: the invariants;
 - L{cluster}, L{embedded}: the two systems;
 - L{harness}, L{directed}: schedules written by hand;
 - L{mutations}: unsafe variants of the protocol;
 - L{runs}, L{report}: running many seeds, and reporting the results.
"""
