INSERT INTO floor_audit (at, actor, event, detail, subject)
VALUES (?1, ?2, 'message_sent', ?3, ?4)
