DROP INDEX audit_actor;
DROP INDEX audit_subject;
ALTER TABLE audit DROP COLUMN subject;
