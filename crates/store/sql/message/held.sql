-- What a lease holds: a claim whose commit was in doubt finds what it took.
SELECT {message_columns} FROM message m WHERE m.lease_id = $1::uuid AND m.status = 'delivered'
