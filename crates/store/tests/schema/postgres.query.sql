-- Everything in the schema public, as the catalog describes it, one object a line or block.
SELECT text FROM (
    SELECT 1 AS kind, t.typname AS name, 'type ' || t.typname || ': ' || (
        SELECT string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder)
        FROM pg_enum e WHERE e.enumtypid = t.oid) AS text
    FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace AND t.typtype = 'e'
    UNION ALL
    SELECT 2, c.relname || lpad(a.attnum::text, 3, '0'),
        'column ' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
        || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
        || CASE a.attgenerated WHEN 's' THEN ' GENERATED' ELSE '' END
        || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '')
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v')
    UNION ALL
    SELECT 3, r.relname || ' ' || c.conname,
        'constraint ' || r.relname || '.' || c.conname || ' ' || pg_get_constraintdef(c.oid)
    FROM pg_constraint c JOIN pg_class r ON r.oid = c.conrelid
    WHERE c.connamespace = 'public'::regnamespace AND c.contype NOT IN ('t', 'n')
    UNION ALL
    SELECT 4, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL
    SELECT 5, c.relname || ' ' || t.tgname, pg_get_triggerdef(t.oid)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'public'::regnamespace AND NOT t.tgisinternal
    UNION ALL
    SELECT 6, p.proname, pg_get_functiondef(p.oid)
    FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT 7, sequencename, 'sequence ' || sequencename || ' ' || data_type
    FROM pg_sequences WHERE schemaname = 'public'
) AS object
ORDER BY kind, name
