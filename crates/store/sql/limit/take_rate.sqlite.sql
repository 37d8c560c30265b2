-- So many tasks were handed out under a rate: in the period that runs, or in one that begins now.
INSERT INTO limit_rate (key, began_at, taken) VALUES ($2, :now, $4)
ON CONFLICT (key) DO UPDATE SET
    taken = CASE WHEN :now >= began_at + $3 OR :now < began_at THEN $4 ELSE taken + $4 END,
    began_at = CASE WHEN :now >= began_at + $3 OR :now < began_at THEN :now ELSE began_at END
