DROP INDEX session_providing;
