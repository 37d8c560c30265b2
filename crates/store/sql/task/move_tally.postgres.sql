-- Moved by task/fold_tally itself.
SELECT $1::bigint WHERE FALSE
