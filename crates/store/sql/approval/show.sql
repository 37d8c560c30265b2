-- One question, as it stands.
SELECT {approval_columns} FROM approval a WHERE a.id = $1
