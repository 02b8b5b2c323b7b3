-- Step 3: the reservation says twice what it says, since nothing else in the file tells whether
-- it was changed.

ALTER TABLE reservation ADD COLUMN again TEXT NOT NULL DEFAULT '0:0';
UPDATE reservation SET again = height || ':' || round;
