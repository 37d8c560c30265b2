-- There is one writer.
SELECT {message_columns} FROM message m WHERE m.id = $1
