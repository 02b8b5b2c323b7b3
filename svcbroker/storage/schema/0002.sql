-- Step 2: what proofs are made of.

-- Inner nodes of the history tree, of every eighth level: one row for 256 blocks.
CREATE TABLE history (
    level INTEGER NOT NULL,
    position INTEGER NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (level, position)
) WITHOUT ROWID;

-- The sets of nodes after the first, which genesis has. height: the block that brought it; the
-- next block is decided by it.
CREATE TABLE validator_set (
    generation INTEGER PRIMARY KEY,
    height INTEGER NOT NULL,
    encoded BLOB NOT NULL
);
