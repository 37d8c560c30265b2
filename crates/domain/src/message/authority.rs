//! Who may write to whom.
//!
//! The rule: an agent may write along its own line of the hierarchy, up and down, and to whomever
//! it was granted by name. Between two ventures only a grant counts, also within a line. A person
//! who writes in nobody's name is bound by the key, not by the hierarchy.
//!
//! Invariant: every answer names the rule that gave it, so that the audit can tell it.

/// What the rule needs to know of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// The venture it works for; none works above ventures.
    pub venture: Option<String>,
    /// Its parent, that one's parent, and so on.
    pub ancestors: Vec<String>,
    /// Whether it was archived.
    pub archived: bool,
}

/// Whoever wants to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A person, or the service itself.
    Person,
    /// An agent that the registry does not know.
    Stranger,
    /// An agent.
    Agent(Agent),
}

/// Why a message may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// A person wrote it.
    Person,
    /// An agent wrote to itself.
    Itself,
    /// The receiver is above the sender.
    Up,
    /// The receiver is below the sender.
    Down,
    /// It was granted.
    Grant,
}

/// Why a message may not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The agent that it speaks for is not known.
    UnknownSender,
    /// The agent that it speaks for was archived.
    ArchivedSender,
    /// The two work for different ventures, and nothing was granted.
    OtherVenture,
    /// Neither is above the other, and nothing was granted.
    OtherLine,
}

impl Permit {
    /// Its name in the audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Permit::Person => "person",
            Permit::Itself => "itself",
            Permit::Up => "line_up",
            Permit::Down => "line_down",
            Permit::Grant => "grant",
        }
    }
}

impl Rule {
    /// Its name in the audit and in the refusal.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::UnknownSender => "unknown_sender",
            Rule::ArchivedSender => "archived_sender",
            Rule::OtherVenture => "other_venture",
            Rule::OtherLine => "other_line",
        }
    }

    /// What it means, and what would help.
    pub const fn words(self) -> &'static str {
        match self {
            Rule::UnknownSender => "the sender is not a known agent; create it first",
            Rule::ArchivedSender => "the sender is archived and speaks no more",
            Rule::OtherVenture => {
                "the two work for different ventures; grant the sender the right to write to it"
            }
            Rule::OtherLine => {
                "neither is above the other in the hierarchy; write along the line, or grant the \
                 sender the right to write to it"
            }
        }
    }
}

/// Whether `sender` may write to `receiver`; `granted`: whether it was given that right by name.
pub fn decide(sender: &Sender, receiver: &Agent, granted: bool) -> Result<Permit, Rule> {
    let sender = match sender {
        Sender::Person => return Ok(Permit::Person),
        Sender::Stranger => return Err(Rule::UnknownSender),
        Sender::Agent(agent) if agent.archived => return Err(Rule::ArchivedSender),
        Sender::Agent(agent) => agent,
    };
    if sender.name == receiver.name {
        return Ok(Permit::Itself);
    }
    if granted {
        return Ok(Permit::Grant);
    }
    let is_across = match (&sender.venture, &receiver.venture) {
        (Some(one), Some(other)) => one != other,
        _ => false,
    };
    if is_across {
        return Err(Rule::OtherVenture);
    }
    if sender.ancestors.contains(&receiver.name) {
        return Ok(Permit::Up);
    }
    if receiver.ancestors.contains(&sender.name) {
        return Ok(Permit::Down);
    }
    Err(Rule::OtherLine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, venture: Option<&str>, ancestors: &[&str]) -> Agent {
        Agent {
            name: name.into(),
            venture: venture.map(Into::into),
            ancestors: ancestors.iter().map(|&name| name.into()).collect(),
            archived: false,
        }
    }

    fn asked(sender: &Agent, receiver: &Agent, granted: bool) -> Result<Permit, Rule> {
        decide(&Sender::Agent(sender.clone()), receiver, granted)
    }

    #[test]
    fn the_own_line_is_open_up_and_down() {
        let ceo = agent("ceo", None, &[]);
        let vp = agent("vp", Some("a"), &["ceo"]);
        let crew = agent("crew", Some("a"), &["vp", "ceo"]);
        for (upper, lower) in [(&ceo, &vp), (&vp, &crew), (&ceo, &crew)] {
            assert_eq!(asked(upper, lower, false), Ok(Permit::Down));
            assert_eq!(asked(lower, upper, false), Ok(Permit::Up));
        }
        assert_eq!(asked(&crew, &crew, false), Ok(Permit::Itself));
    }

    #[test]
    fn beside_the_line_only_a_grant_counts() {
        let one = agent("one", Some("a"), &["vp", "ceo"]);
        let other = agent("other", Some("a"), &["vp", "ceo"]);
        assert_eq!(asked(&one, &other, false), Err(Rule::OtherLine));
        assert_eq!(asked(&one, &other, true), Ok(Permit::Grant));
    }

    #[test]
    fn across_ventures_only_a_grant_counts_also_within_a_line() {
        let upper = agent("upper", Some("a"), &[]);
        let lower = agent("lower", Some("b"), &["upper"]);
        assert_eq!(asked(&upper, &lower, false), Err(Rule::OtherVenture));
        assert_eq!(asked(&lower, &upper, false), Err(Rule::OtherVenture));
        assert_eq!(asked(&upper, &lower, true), Ok(Permit::Grant));
        // Whoever works above ventures crosses none.
        let top = agent("top", None, &[]);
        assert_eq!(asked(&top, &agent("x", Some("b"), &["top"]), false), Ok(Permit::Down));
    }

    #[test]
    fn a_person_may_write_and_a_stranger_or_an_archived_agent_may_not() {
        let ceo = agent("ceo", None, &[]);
        assert_eq!(decide(&Sender::Person, &ceo, false), Ok(Permit::Person));
        assert_eq!(decide(&Sender::Stranger, &ceo, true), Err(Rule::UnknownSender));
        let gone = Agent { archived: true, ..agent("gone", None, &["ceo"]) };
        assert_eq!(asked(&gone, &ceo, true), Err(Rule::ArchivedSender));
    }
}
