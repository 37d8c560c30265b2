-- Everything below the oldest running transaction has been shown; nothing else has.
SELECT windlass_horizon() - 1, 9223372036854775807
