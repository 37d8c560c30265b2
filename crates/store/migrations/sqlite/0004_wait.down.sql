DROP TABLE signal;
DROP TABLE wait;
