SELECT scope, name, mode, reason, since, by FROM pause
