-- Nobody counts lanes here, and other nodes rely on what they know of them: all $1 stay.
SELECT $1::bigint WHERE FALSE
