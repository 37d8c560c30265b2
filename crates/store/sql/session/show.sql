SELECT {session_columns} FROM session WHERE id = $1::uuid
