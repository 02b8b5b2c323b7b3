-- Step 7: parts of headers that are alike in many blocks are stored once, and hashes only beside
-- their headers.

-- shared: what a header says of the chain and of its validators, without its height and total.
CREATE TABLE header_base (
    number INTEGER PRIMARY KEY,
    shared BLOB NOT NULL
);
CREATE UNIQUE INDEX header_base_shared ON header_base (shared);

-- The number of the parts that the header lacks; NULL where it stands there whole, as all do that
-- were stored before this step.
ALTER TABLE head ADD COLUMN base INTEGER;

-- The beginning of a hash finds its block.
DROP INDEX head_hash;
CREATE INDEX head_hash ON head (substr(hash, 1, 8));

INSERT INTO compatible (version, since, release) VALUES (7, 7, '0.2.0');
