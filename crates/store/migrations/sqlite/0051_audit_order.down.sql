-- There is one writer: its numbers are in the order of its commits.
SELECT 1;
