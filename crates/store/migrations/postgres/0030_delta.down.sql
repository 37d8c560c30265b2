DROP TABLE delta_chunk;
DROP TABLE delta_source;
