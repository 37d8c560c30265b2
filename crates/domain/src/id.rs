//! Identifiers. Each kind of id is its own type, so that a lease can never be passed for a task.
//!
//! Absent: nothing here makes an id. Ids are made where randomness enters, before the first try
//! of an operation, and reused on every try.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map($name)
            }
        }
    )*};
}

id! {
    /// A unit of work.
    TaskId;
    /// One holder's right to a task: made fresh by every claim, never reused, shown only once.
    LeaseId;
    /// One transition: the id of its history row.
    ChangeId;
    /// One claim call; repeating it returns what it already gave.
    ClaimId;
    /// A worker that takes part.
    SessionId;
    /// A question to a person.
    ApprovalId;
    /// A step of a task: made of what identifies the step, so that the same step has the same id.
    StepId;
    /// Something that a waiting task may be told.
    SignalId;
    /// What one agent tells another.
    MessageId;
}

/// What a reader may know of a lease: enough to tell two apart, and no right to anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseDigest(pub Uuid);

impl LeaseId {
    /// The lease without the right.
    pub fn digest(self) -> LeaseDigest {
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha256::digest(self.0.as_bytes())[..16]);
        LeaseDigest(Uuid::from_bytes(digest))
    }
}

impl std::fmt::Display for LeaseDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}
