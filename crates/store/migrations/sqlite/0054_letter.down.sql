DROP TRIGGER dead_letter_can_be_read;
CREATE TRIGGER dead_letter_can_be_read BEFORE INSERT ON dead_letter BEGIN
    SELECT RAISE(ABORT, 'windlass: dead_letter: an id is 36 characters, lower case, with hyphens')
    WHERE (NEW.message_id NOT LIKE '________-____-____-____-____________'
        OR replace(NEW.message_id, '-', '') GLOB '*[^0-9a-f]*'
        OR length(replace(NEW.message_id, '-', '')) <> 32);
    SELECT RAISE(ABORT, 'windlass: dead_letter: the JSON is too deep, or no 64-bit float holds it')
    WHERE EXISTS (
        SELECT 1 FROM json_tree(NEW.original) AS j
        WHERE (j.type IN ('integer', 'real') AND abs(j.atom) = 9e999)
           OR (j.type = 'integer' AND typeof(j.atom) = 'real')
           OR (j.type IN ('array', 'object') AND 64
               <= length(j.fullkey) - length(replace(replace(j.fullkey, '.', ''), '[', ''))))
        OR NEW.original GLOB '*\u[dD][89abAB]*' OR NEW.original GLOB '*\u0000*';
    SELECT RAISE(ABORT, 'windlass: dead_letter: a time must be from the year 1970 to 9999')
    WHERE NEW.entered_at NOT BETWEEN 0 AND 253402300799999
        OR NEW.updated_at NOT BETWEEN 0 AND 253402300799999;
END;
