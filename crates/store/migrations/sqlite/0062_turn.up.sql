-- SQLite has one writer: nobody can begin a conversation beside it.
SELECT 1;
