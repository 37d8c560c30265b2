DROP TABLE duty;
DROP TABLE node;
DROP TABLE session;
