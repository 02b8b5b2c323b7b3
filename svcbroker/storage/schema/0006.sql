-- Step 6: holds, which keep events from being erased.

-- Holds, and their releases as far as there are any: each by the place of its transaction, with the
-- time of its block in milliseconds since the epoch and its entry in the body: head and content.
CREATE TABLE hold (
    height INTEGER NOT NULL,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    time INTEGER NOT NULL,
    entry BLOB NOT NULL,
    released_height INTEGER,
    released_position INTEGER,
    released_time INTEGER,
    release BLOB,
    PRIMARY KEY (height, position)
) WITHOUT ROWID;
CREATE UNIQUE INDEX hold_in_force ON hold (name) WHERE released_height IS NULL;

-- How many holds are in force, twice: without one of them, what it holds might be erased.
CREATE TABLE holding (
    id INTEGER PRIMARY KEY CHECK (id = 0),
    count INTEGER NOT NULL,
    again TEXT NOT NULL
);
INSERT INTO holding (id, count, again) VALUES (0, 0, '0');

INSERT INTO compatible (version, since, release) VALUES (6, 6, '0.2.0');
