SELECT coalesce(windlass_log_is_ahead(), FALSE)
