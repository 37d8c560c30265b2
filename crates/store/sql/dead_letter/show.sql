SELECT {dead_letter_columns} FROM dead_letter dl WHERE dl.message_id = $1::uuid
