DROP TRIGGER task_state_enters_trouble;
DROP TABLE trouble_note;
DROP TABLE trouble;
DROP TABLE alert;
DROP TABLE notice;
