-- One question, for whoever decides. Its task is locked before it, always in this order.
SELECT {approval_columns} FROM approval a WHERE a.id = $1 FOR UPDATE OF a
