//! What a claim hands out: a task, and the lease that proves who holds it.

use serde_json::{Value, json};

/// A task and its lease.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The task as the API shows it.
    pub task: Value,
    /// Its id.
    pub task_id: String,
    /// The lease. It goes to the task's own command, by its environment, and nowhere else.
    pub lease_id: String,
    /// Which attempt this is, counted from 1.
    pub attempt: i64,
    steps: Value,
    steps_complete: bool,
}

impl Assignment {
    /// Reads what the server sent; nothing if it lacks the task or the lease.
    pub fn read(value: &Value) -> Option<Assignment> {
        let task = value.get("task")?.clone();
        let attempt = value["attempt"].as_i64().or_else(|| task["attempt"].as_i64());
        Some(Assignment {
            task_id: task.get("id")?.as_str()?.to_owned(),
            lease_id: value.get("lease_id")?.as_str()?.to_owned(),
            attempt: attempt.unwrap_or(1),
            steps: value["steps"].clone(),
            steps_complete: value["steps_complete"] != false,
            task,
        })
    }

    /// All assignments of an answer's list.
    pub fn read_all(list: &Value) -> Vec<Assignment> {
        list.as_array().into_iter().flatten().filter_map(Assignment::read).collect()
    }

    /// What the child reads: the task, the attempt, and the steps recorded so far, on one line.
    pub fn input(&self) -> Vec<u8> {
        let mut task = self.task.clone();
        if let Some(fields) = task.as_object_mut() {
            fields.remove("lease_id");
            fields.insert("attempt".into(), json!(self.attempt));
            let steps = if self.steps.is_array() { self.steps.clone() } else { json!([]) };
            fields.insert("steps".into(), steps);
            fields.insert("steps_complete".into(), json!(self.steps_complete));
        }
        let mut bytes = task.to_string().into_bytes();
        bytes.push(b'\n');
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_child_reads_the_task_and_never_the_lease() {
        let given = json!({
            "task": { "id": "t", "payload": { "a": 1 }, "lease_id": "secret" },
            "lease_id": "secret", "attempt": 2, "steps": [{ "name": "fetch" }],
        });
        let assignment = Assignment::read(&given).unwrap();
        let input = assignment.input();
        assert!(!String::from_utf8_lossy(&input).contains("secret"));
        let input: Value = serde_json::from_slice(&input).unwrap();
        assert_eq!(input["attempt"], 2);
        assert_eq!(input["payload"]["a"], 1);
        assert_eq!(input["steps"][0]["name"], "fetch");
        assert_eq!(input["steps_complete"], true);
    }

    #[test]
    fn an_assignment_without_a_lease_is_none() {
        assert!(Assignment::read(&json!({ "task": { "id": "t" } })).is_none());
        assert_eq!(Assignment::read_all(&Value::Null).len(), 0);
    }
}
