-- With which word a delivery ended; migrations/postgres/0052_ending.up.sql says more.
ALTER TABLE message ADD COLUMN ending_digest TEXT;
