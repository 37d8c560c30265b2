-- Locked until the transaction ends: of two who close it, the second sees what the first did.
SELECT {dead_letter_columns} FROM dead_letter dl WHERE dl.message_id = $1::uuid FOR UPDATE
