//! The state machine in SQL, generated from the domain's table.
//!
//! Migrations are fixed text, so the generated parts stand in them between `--@name` and `--@end`
//! and a test compares. To change the machine, write a new migration with the new parts.

use crate::statement::{Dialect, without_lists};
use windlass_domain::message;
use windlass_domain::profile::{PROFILES, Profile};
use windlass_domain::state::{Event, State};
use windlass_domain::step::STEPS;
use windlass_domain::transition::{TRANSITIONS, Transition};

/// The generated parts, by the name of their marker. PostgreSQL looks transitions up in its table;
/// only SQLite has them in a check, too.
pub fn parts(dialect: Dialect) -> Vec<(&'static str, String)> {
    let mut parts = vec![("transitions", transitions()), ("profiles", profiles())];
    if dialect == Dialect::Sqlite {
        parts.push(("legal_transition", legal_transition()));
    }
    parts
}

/// The generated part of the migration of steps.
pub fn step_parts() -> Vec<(&'static str, String)> {
    let rows: Vec<_> = STEPS.iter().map(|(f, _, t)| format!("    ('{f}', '{t}')")).collect();
    let insert = "INSERT INTO step_transition (from_status, to_status) VALUES";
    vec![("step_transitions", format!("{insert}\n{};\n", rows.join(",\n")))]
}

/// The generated part of the migration of messages.
pub fn message_parts() -> Vec<(&'static str, String)> {
    let rows: Vec<_> = message::TRANSITIONS
        .iter()
        .map(|(from, _, to)| format!("    ('{from}', '{to}')"))
        .collect();
    let insert = "INSERT INTO message_transition (from_status, to_status) VALUES";
    vec![("message_transitions", format!("{insert}\n{};\n", rows.join(",\n")))]
}

/// Replaces what stands between each marker and its end.
pub fn fill(migration: &str, parts: Vec<(&'static str, String)>) -> String {
    let mut text = migration.to_owned();
    for (name, part) in parts {
        let begin = format!("--@{name}\n");
        let Some(start) = text.find(&begin).map(|at| at + begin.len()) else {
            continue;
        };
        let Some(length) = text[start..].find("--@end") else {
            continue;
        };
        text.replace_range(start..start + length, &part);
    }
    text
}

/// The rows of the table `transition`: one for each profile that a transition is open to.
fn transitions() -> String {
    let mut rows = Vec::new();
    for (rank, t) in TRANSITIONS.iter().enumerate() {
        let Some(from) = t.from else { continue };
        for profile in Profile::ALL.iter().filter(|&&p| t.tasks.includes(p)) {
            rows.push(format!("    ({rank}, '{profile}', '{from}', '{}', '{}')", t.event, t.to));
        }
    }
    format!(
        "INSERT INTO transition (rank, profile, from_status, event, to_status) VALUES\n{};\n",
        rows.join(",\n")
    )
}

fn profiles() -> String {
    let null = || "NULL".to_owned();
    let rows: Vec<_> = PROFILES
        .iter()
        .map(|r| {
            let deadline = r.deadline_ms.map_or_else(null, |ms| ms.to_string());
            let retention = r.retention_ms.map_or_else(null, |ms| ms.to_string());
            format!("    ('{}', {}, {deadline}, {retention})", r.profile, r.max_retries)
        })
        .collect();
    format!(
        "INSERT INTO profile (profile, max_retries, deadline_ms, retention_ms) VALUES\n{};\n",
        rows.join(",\n")
    )
}

/// A check over (profile, from_status, event, status): a fresh task is pending, a living task may
/// be touched, and everything else is a row of the table.
fn legal_transition() -> String {
    let living = names(State::ALL.iter().copied().filter(|s| !s.is_terminal()));
    let mut lines = vec![
        "        CASE".to_owned(),
        "        WHEN from_status IS NULL THEN event = 'submit' AND status = 'pending'".to_owned(),
        "        WHEN from_status = status THEN status IN (".to_owned(),
        format!("            {living})"),
        "        ELSE CASE event".to_owned(),
    ];
    for &event in Event::ALL.iter().filter(|&&e| e != Event::Submit) {
        lines.push(format!("            WHEN '{event}' THEN"));
        let choices = choices(event);
        for (i, choice) in choices.iter().enumerate() {
            let or = if i == 0 { "" } else { "OR " };
            lines.push(format!("                {or}{choice}"));
        }
    }
    lines.push("            ELSE FALSE END".into());
    lines.push("        END".into());
    wrapped(&without_lists(&(lines.join("\n") + "\n")))
}

/// Breaks long lines of alternatives.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let indent = " ".repeat(line.len() - line.trim_start().len() + 4);
        let mut rest = line.to_owned();
        while rest.len() > 96 {
            let Some(at) = rest[..96].rfind(" OR ") else { break };
            out += &format!("{}\n", &rest[..at]);
            rest = format!("{indent}{}", &rest[at + 1..]);
        }
        out += &format!("{rest}\n");
    }
    out
}

/// The rows of one event, those with the same profiles and sources merged.
fn choices(event: Event) -> Vec<String> {
    let rows: Vec<&Transition> = TRANSITIONS.iter().filter(|t| t.event == event).collect();
    let mut by_target: Vec<(State, Vec<Profile>, Vec<State>)> = Vec::new();
    for t in rows {
        let Some(from) = t.from else { continue };
        let profiles: Vec<_> =
            Profile::ALL.iter().copied().filter(|&p| t.tasks.includes(p)).collect();
        match by_target.iter_mut().find(|(to, p, _)| *to == t.to && *p == profiles) {
            Some((_, _, sources)) => sources.push(from),
            None => by_target.push((t.to, profiles, vec![from])),
        }
    }
    let mut merged: Vec<(Vec<State>, Vec<Profile>, Vec<State>)> = Vec::new();
    for (to, profiles, sources) in by_target {
        match merged.iter_mut().find(|(_, p, s)| *p == profiles && *s == sources) {
            Some((targets, _, _)) => targets.push(to),
            None => merged.push((vec![to], profiles, sources)),
        }
    }
    merged.into_iter().map(|(to, profiles, from)| choice(&to, &profiles, &from)).collect()
}

fn choice(to: &[State], profiles: &[Profile], from: &[State]) -> String {
    let source = one_of("from_status", names(from.iter().copied()), from.len());
    let target = one_of("status", names(to.iter().copied()), to.len());
    let executed: Vec<_> = Profile::ALL.iter().copied().filter(|&p| p != Profile::Ledger).collect();
    let whose = if profiles.len() == Profile::ALL.len() {
        String::new()
    } else if profiles == executed {
        " AND profile <> 'ledger'".to_owned()
    } else {
        let list: Vec<_> = profiles.iter().map(|p| format!("'{p}'")).collect();
        format!(" AND {}", one_of("profile", list.join(", "), profiles.len()))
    };
    format!("{source}\n                    AND {target}{whose}")
}

fn one_of(column: &str, list: String, length: usize) -> String {
    match length {
        1 => format!("{column} = {list}"),
        2..=4 => format!("{column} IN ({list})"),
        // A long list has a line of its own.
        _ => format!("{column} IN (\n                        {list})"),
    }
}

fn names(states: impl Iterator<Item = State>) -> String {
    let names: Vec<_> = states.map(|s| format!("'{s}'")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With UPDATE_DOCS=1 the files are rewritten; look at the difference before you commit it.
    #[test]
    fn the_migrations_carry_the_machine_of_the_domain() {
        for (engine, dialect) in [("sqlite", Dialect::Sqlite), ("postgres", Dialect::Postgres)] {
            for (file, parts) in [
                ("0001_task", parts(dialect)),
                ("0003_step", step_parts()),
                ("0045_message", message_parts()),
            ] {
                let folder = env!("CARGO_MANIFEST_DIR");
                let path = format!("{folder}/migrations/{engine}/{file}.up.sql");
                let text = std::fs::read_to_string(&path).expect("the migration exists");
                for (name, _) in &parts {
                    assert!(text.contains(&format!("--@{name}\n")), "{path} lacks --@{name}");
                }
                let filled = fill(&text, parts);
                if std::env::var_os("UPDATE_DOCS").is_some() {
                    std::fs::write(&path, &filled).expect("the migration can be written");
                    continue;
                }
                assert!(filled == text, "{path} differs from the domain's tables");
            }
        }
    }
}
