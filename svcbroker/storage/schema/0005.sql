-- Step 5: up to where the rows of bodies were written close together, and which software may use
-- the file.

-- The height up to which rows were written close together again, after all contents of these blocks
-- were erased. It stands there twice, as the reservation does. Some files of schema 4 have it.
CREATE TABLE IF NOT EXISTS compacted (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    height INTEGER NOT NULL,
    again TEXT NOT NULL
);
INSERT OR IGNORE INTO compacted (id, height, again) VALUES (0, 0, '0');

-- Each later step adds the row of its number. since: the oldest schema whose software may read and
-- write the file; release: the first one that knows it. A file without the row of its own number is
-- refused by older software.
CREATE TABLE compatible (
    version INTEGER PRIMARY KEY,
    since INTEGER NOT NULL,
    release TEXT NOT NULL
);
INSERT INTO compatible (version, since, release) VALUES (5, 5, '0.2.0');
