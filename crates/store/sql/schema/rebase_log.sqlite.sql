-- There are no transaction numbers.
SELECT NULL
