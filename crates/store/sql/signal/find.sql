-- One signal.
SELECT {signal_columns} FROM signal WHERE id = $1
