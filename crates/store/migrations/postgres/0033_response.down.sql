DROP TABLE deleted_response;
