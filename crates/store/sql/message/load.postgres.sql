-- Locked until the transaction ends.
SELECT {message_columns} FROM message m WHERE m.id = $1::uuid FOR UPDATE
