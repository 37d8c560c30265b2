DROP TABLE agent;
