"""
The table of all commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ._command import Command

SECTIONS: Final[Mapping[str, tuple[Command, ...]]] = {
    "Publish and read": (
        Command("pub", "Publish an event, or each line of standard input."),
        Command("sub", "Show events as they are published."),
        Command("tail", "Show the last events, and then those that follow."),
        Command("events", "Show stored events."),
        Command("replay", "Show stored events at the pace at which they were published."),
        Command("get", "Show one event."),
        Command("prove", "Get the proof of an event, and check it."),
        Command("topic", "List, open, close and describe topics."),
        Command("context", "Keep where brokers are, with which credentials, under names."),
    ),
    "Proofs and signatures, offline": (
        Command(
            "bundle", "Put the proofs of events into one file, with a page that verifies them."
        ),
        Command("verify", "Check a proof offline, against a trusted genesis or checkpoint."),
        Command("keygen", "Make a key with which an author signs events."),
        Command("sign", "Sign an event as its author, offline."),
        Command("monitor", "Follow a log from outside, and say so when it does not only grow."),
        Command("contradict", "Show that two statements of one chain cannot both be true."),
    ),
    "A daemon": (
        Command("run", "Run the daemon, until Ctrl-C."),
        Command("subscription", "List, reset and delete durable subscriptions and MQTT sessions."),
        Command(
            "webhook", "List, pause, resume, retry and end webhooks, and skip an event of one."
        ),
        Command("erase", "Erase the content of events, for good and on all nodes."),
        Command("reload", "Have a running daemon read its accounts and certificates again."),
        Command("restore", "Restore a chain from a backup, up to a height."),
        Command("replicate", "Keep a verified copy of the chains of another broker."),
        Command("promote", "Go on with a copy, where the original is gone for good."),
        Command("nodes", "Give a running daemon's replicas new keys, or change their number."),
        Command("top", "Show what a broker does, live."),
        Command("bench", "Measure how fast a broker takes events in."),
        Command("fault", "Stop replicas of a running daemon, and cut or slow down their network."),
    ),
    "Its data": (
        Command("doctor", "Say what is wrong with a broker and its machine, and what to do."),
        Command("audit", "Check everything in a data directory, and name the place of any damage."),
        Command("genesis", "Write the genesis of a chain, against which its proofs are checked."),
        Command("checkpoint", "Print a block's hash, to be kept outside of the broker's reach."),
        Command("log", "Show the transparency log's key, and write the log as files."),
        Command("export", "Write a chain as a stream of blocks with their certificates."),
        Command(
            "import",
            "Import a chain from a stream, and check every block of it.",
            module=f"{__package__}.importing",
        ),
        Command("backup", "Copy a data directory, also while a broker runs on it."),
    ),
    "Accounts, networks and set-up": (
        Command("account", "Make accounts, their passwords and tokens, and say what they may do."),
        Command("certificates", "Make certificates for trying TLS, of an authority of its own."),
        Command("testnet", "Run a whole CometBFT network on this machine, to try it out."),
        Command("engine", "Found, join and govern a CometBFT network of several organisations."),
        Command("witness", "Run a witness, which cosigns the checkpoints of logs that only grow."),
        Command("completion", "Write a script by which bash, zsh or fish completes commands."),
    ),
}
"""Every command, in the sections and the order in which the help text shows them."""

COMMANDS: Final = tuple(command for commands in SECTIONS.values() for command in commands)
