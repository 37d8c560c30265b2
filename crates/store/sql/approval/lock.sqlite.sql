-- One question, for whoever decides: there is one writer.
SELECT {approval_columns} FROM approval a WHERE a.id = $1
