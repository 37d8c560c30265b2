-- A dump restored into a cluster with lower transaction numbers: the log goes on where it ended.
SELECT windlass_rebase_log()
