//! Trouble: what a person does about a task that ended poisoned or stuck, or about a dead letter.
//!
//! Invariant: the table [`TRANSITIONS`] is the only place that says what may follow what, and what
//! is closed stays closed. The databases refuse the same.
//! Absent: the task. It is finished and never changes; a replay is a new task, and a resolution may
//! name it.

use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::validate::{self, Errors, MAX_NAME_BYTES};

/// The longest note, in bytes.
pub const MAX_NOTE_BYTES: usize = 64 * 1024;

/// Where the work of a person stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Nobody has taken it up.
    Pending,
    /// Somebody looks into it.
    Investigating,
    /// It is done, perhaps by another task.
    Resolved,
    /// Nothing will be done.
    Abandoned,
}

/// What a person does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Says whose it is.
    Assign,
    /// Takes it up.
    Investigate,
    /// Writes something down.
    Note,
    /// Closes it: done.
    Resolve,
    /// Closes it: nothing will be done.
    Abandon,
}

/// From where an event leads where.
pub const TRANSITIONS: &[(Status, Event, Status)] = &[
    (Status::Pending, Event::Assign, Status::Pending),
    (Status::Pending, Event::Investigate, Status::Investigating),
    (Status::Pending, Event::Note, Status::Pending),
    (Status::Investigating, Event::Assign, Status::Investigating),
    (Status::Investigating, Event::Note, Status::Investigating),
    (Status::Investigating, Event::Resolve, Status::Resolved),
    (Status::Investigating, Event::Abandon, Status::Abandoned),
    // What is learnt later is still worth a note.
    (Status::Resolved, Event::Note, Status::Resolved),
    (Status::Abandoned, Event::Note, Status::Abandoned),
];

impl Status {
    /// Every status.
    pub const ALL: &[Status] =
        &[Status::Pending, Status::Investigating, Status::Resolved, Status::Abandoned];

    /// Its name, in the API and in both databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            Status::Pending => "pending",
            Status::Investigating => "investigating",
            Status::Resolved => "resolved",
            Status::Abandoned => "abandoned",
        }
    }

    /// Whether nothing more is to be done.
    pub const fn is_closed(self) -> bool {
        matches!(self, Status::Resolved | Status::Abandoned)
    }
}

impl Event {
    /// Every event.
    pub const ALL: &[Event] =
        &[Event::Assign, Event::Investigate, Event::Note, Event::Resolve, Event::Abandon];

    /// Its name, in the API and in both databases.
    pub const fn as_str(self) -> &'static str {
        match self {
            Event::Assign => "assign",
            Event::Investigate => "investigate",
            Event::Note => "note",
            Event::Resolve => "resolve",
            Event::Abandon => "abandon",
        }
    }
}

impl std::str::FromStr for Status {
    type Err = ();

    fn from_str(text: &str) -> Result<Status, ()> {
        Status::ALL.iter().copied().find(|status| status.as_str() == text).ok_or(())
    }
}

impl std::str::FromStr for Event {
    type Err = ();

    fn from_str(text: &str) -> Result<Event, ()> {
        Event::ALL.iter().copied().find(|event| event.as_str() == text).ok_or(())
    }
}

/// What people know of one thing that needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Named like the columns.
pub struct Case {
    pub status: Status,
    pub assignee: Option<String>,
    pub updated_at: Timestamp,
    pub closed_at: Option<Timestamp>,
}

impl Case {
    /// One step of what somebody does.
    pub fn step(
        &mut self,
        event: Event,
        to: Status,
        actor: &str,
        assignee: Option<&str>,
        now: Timestamp,
    ) {
        self.status = to;
        self.updated_at = now;
        self.closed_at = to.is_closed().then_some(self.closed_at.unwrap_or(now));
        match event {
            Event::Assign => self.assignee = assignee.map(str::to_owned),
            Event::Investigate => {
                // Whoever takes it up has it, unless somebody is named or has it already.
                let named = assignee.map(str::to_owned).or_else(|| self.assignee.take());
                self.assignee = named.or_else(|| Some(actor.to_owned()));
            }
            Event::Note | Event::Resolve | Event::Abandon => {}
        }
    }
}

fn step(from: Status, event: Event) -> Option<Status> {
    let found = TRANSITIONS.iter().find(|(f, e, _)| (*f, *e) == (from, event));
    found.map(|(_, _, to)| *to)
}

/// The steps that an event amounts to, each with where it leads. Whoever closes what nobody has
/// taken up takes it up on the way, and both steps are written down.
pub fn decide(from: Status, event: Event) -> Result<Vec<(Event, Status)>, Refusal> {
    steps(from, event).ok_or_else(|| {
        let can = Event::ALL.iter().filter(|event| steps(from, **event).is_some());
        Refusal::IllegalStep {
            what: "trouble",
            status: from.as_str(),
            event: event.as_str(),
            allowed: can.map(|event| event.as_str()).collect(),
        }
    })
}

fn steps(from: Status, event: Event) -> Option<Vec<(Event, Status)>> {
    if let Some(to) = step(from, event) {
        return Some(vec![(event, to)]);
    }
    let taken_up = step(from, Event::Investigate)?;
    let closed = step(taken_up, event).filter(|to| to.is_closed())?;
    Some(vec![(Event::Investigate, taken_up), (event, closed)])
}

/// Whether what somebody says with an act can be kept.
pub fn check(assignee: Option<&str>, note: Option<&str>) -> validate::Result<()> {
    let mut errors = Errors::default();
    if let Some(assignee) = assignee {
        errors.name("/assignee", assignee, MAX_NAME_BYTES);
    }
    match note {
        Some(note) if note.trim().is_empty() => {
            errors.add("/note", "required", "must not be empty");
        }
        Some(note) => errors.text("/note", note, MAX_NOTE_BYTES),
        None => {}
    }
    errors.into_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_must_say_something() {
        assert!(check(Some("ann"), Some("one line\nand another")).is_ok());
        assert!(check(None, None).is_ok());
        for (assignee, note) in
            [(Some(""), None), (Some(" ann"), None), (None, Some(" \n")), (None, Some("a\0"))]
        {
            assert!(check(assignee, note).is_err(), "{assignee:?} {note:?}");
        }
        assert!(check(None, Some(&"x".repeat(MAX_NOTE_BYTES + 1))).is_err());
    }

    #[test]
    fn it_goes_from_pending_to_investigating_to_its_end() {
        use {Event as E, Status as S};
        for (from, event, steps) in [
            (S::Pending, E::Assign, vec![(E::Assign, S::Pending)]),
            (S::Pending, E::Investigate, vec![(E::Investigate, S::Investigating)]),
            (S::Investigating, E::Resolve, vec![(E::Resolve, S::Resolved)]),
            (S::Investigating, E::Abandon, vec![(E::Abandon, S::Abandoned)]),
            (S::Resolved, E::Note, vec![(E::Note, S::Resolved)]),
            (
                S::Pending,
                E::Resolve,
                vec![(E::Investigate, S::Investigating), (E::Resolve, S::Resolved)],
            ),
            (
                S::Pending,
                E::Abandon,
                vec![(E::Investigate, S::Investigating), (E::Abandon, S::Abandoned)],
            ),
        ] {
            assert_eq!(decide(from, event), Ok(steps));
        }
    }

    #[test]
    fn whoever_takes_it_up_has_it() {
        let now = Timestamp::from_ms(7);
        let new = || Case {
            status: Status::Pending,
            assignee: None,
            updated_at: Timestamp::EPOCH,
            closed_at: None,
        };
        let mut case = new();
        case.step(Event::Investigate, Status::Investigating, "ann", None, now);
        assert_eq!(case.assignee.as_deref(), Some("ann"));
        case.step(Event::Investigate, Status::Investigating, "bob", None, now);
        assert_eq!(case.assignee.as_deref(), Some("ann"));
        case.step(Event::Resolve, Status::Resolved, "bob", None, now);
        assert_eq!((case.closed_at, case.updated_at), (Some(now), now));
        let mut case = new();
        case.step(Event::Investigate, Status::Investigating, "ann", Some("bob"), now);
        assert_eq!(case.assignee.as_deref(), Some("bob"));
    }

    #[test]
    fn what_is_closed_takes_notes_and_nothing_else() {
        for status in Status::ALL.iter().filter(|status| status.is_closed()) {
            for event in Event::ALL.iter().filter(|event| **event != Event::Note) {
                let refused = decide(*status, *event).unwrap_err();
                assert_eq!(refused.code(), "illegal_transition");
                assert!(refused.to_string().ends_with("it can: note"), "{refused}");
            }
        }
        let again = decide(Status::Investigating, Event::Investigate).unwrap_err().to_string();
        assert!(again.contains("assign, note, resolve, abandon"), "{again}");
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        assert!(Status::ALL.iter().all(|status| status.as_str().parse() == Ok(*status)));
        assert!(Event::ALL.iter().all(|event| event.as_str().parse() == Ok(*event)));
    }
}
