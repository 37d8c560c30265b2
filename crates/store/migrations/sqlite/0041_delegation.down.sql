DROP INDEX task_state_delegation;
