DROP TRIGGER task_state_enters_trouble ON task_state;
DROP FUNCTION windlass_enter_trouble();
DROP TABLE trouble_note;
DROP TABLE trouble;
DROP FUNCTION windlass_check_trouble();
DROP TABLE alert;
DROP FUNCTION windlass_tell_alert();
DROP TABLE notice;
