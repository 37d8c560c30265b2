DROP TRIGGER pause_delete_is_told;
DROP TRIGGER pause_update_is_told;
DROP TRIGGER pause_insert_is_told;
DROP TRIGGER limit_rule_delete_is_told;
DROP TRIGGER limit_rule_update_is_told;
DROP TRIGGER limit_rule_insert_is_told;
DROP TABLE limit_version;
