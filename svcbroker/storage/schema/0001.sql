-- One chain. Step 1: the whole of it.
-- What is read by height alone comes first and stays small: heads are paged and searched on
-- chains of millions of blocks, so bodies and fingerprints live in tables of their own.

CREATE TABLE chain (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    chain_id BLOB NOT NULL,
    genesis BLOB NOT NULL
);

-- The last consensus round that was set aside before it was used.
CREATE TABLE reservation (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    height INTEGER NOT NULL,
    round INTEGER NOT NULL
);
INSERT INTO reservation (id, height, round) VALUES (0, 0, 0);

-- transaction_total counts the chain's transactions up to and including this block.
CREATE TABLE head (
    height INTEGER PRIMARY KEY,
    transaction_total INTEGER NOT NULL,
    hash BLOB NOT NULL,
    header BLOB NOT NULL,
    certificate BLOB NOT NULL
);
CREATE UNIQUE INDEX head_hash ON head (hash);

CREATE TABLE body (
    height INTEGER PRIMARY KEY,
    receipts BLOB NOT NULL,
    body BLOB NOT NULL
);

-- The first four bytes of each transaction's hash, in the chain's order, 512 to a row: row n has
-- the transactions from n * 512. A scan of ten million transactions reads 40 MB, and no
-- transaction costs an index row.
CREATE TABLE fingerprint (
    segment INTEGER PRIMARY KEY,
    prints BLOB NOT NULL
);

-- prefix: the first four bytes of the SHA-256 of the name, which event ids name a topic by.
CREATE TABLE topic (
    idx INTEGER PRIMARY KEY,
    prefix INTEGER NOT NULL,
    name TEXT NOT NULL,
    address BLOB NOT NULL,
    sender BLOB NOT NULL,
    created INTEGER NOT NULL,
    is_open INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    height INTEGER NOT NULL
);
CREATE INDEX topic_prefix ON topic (prefix);

CREATE TABLE account (
    idx INTEGER PRIMARY KEY,
    address BLOB NOT NULL,
    state BLOB NOT NULL
);

-- Where the events of one topic stand in one block's body: big-endian pairs of u32, offset and
-- length, in the order of the sequence numbers from first_sequence.
CREATE TABLE topic_block (
    topic INTEGER NOT NULL,
    height INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    positions BLOB NOT NULL,
    PRIMARY KEY (topic, height)
) WITHOUT ROWID;
