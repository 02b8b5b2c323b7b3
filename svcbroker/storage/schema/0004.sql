-- Step 4: authors of topics, uses of idempotency keys, and erased events.

-- The encoded set of authors; NULL for a topic without one.
ALTER TABLE topic ADD COLUMN authors BLOB;

-- Zeros that keep a row from growing where its body was written again without some contents: a row
-- that grows may move its neighbours to another page, and their contents would stay in the old one.
ALTER TABLE body ADD COLUMN padding BLOB;

-- The latest 2^20 uses of each owner. digest: of the content; NULL where that is erased.
CREATE TABLE key_use (
    owner BLOB NOT NULL,
    number INTEGER NOT NULL,
    key TEXT NOT NULL,
    topic INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    height INTEGER NOT NULL,
    digest BLOB,
    PRIMARY KEY (owner, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX key_use_key ON key_use (owner, key);

-- Which events were erased, and by which transaction: its block and its position there. No two
-- ranges overlap.
CREATE TABLE erased (
    topic INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    height INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (topic, first)
) WITHOUT ROWID;

-- Erased events whose content may still be in the file. height: of the next block that has some of
-- them; 0 where it was not looked for yet; 2^63 - 1 where it is in no body any more, but may be in a
-- copy: in the write-ahead log, or beside the file.
CREATE TABLE erasing (
    height INTEGER NOT NULL,
    topic INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    PRIMARY KEY (height, topic, first)
) WITHOUT ROWID;
