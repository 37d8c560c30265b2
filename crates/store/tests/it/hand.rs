//! A person with psql or sqlite3: many small sessions in one process, each rolled back.
//!
//! Invariant: the programs run with their own default settings (sqlite3: no foreign keys, no
//! recursive triggers), because that is what a person has.

use crate::world::{Place, World, file};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use windlass_store::statement::Dialect;

/// One session: what leads up to it, what is tried, and what is looked at afterwards.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// Must succeed.
    pub before: Vec<String>,
    /// May be refused.
    pub tried: String,
    /// A query for the state afterwards; not reached on PostgreSQL when the attempt was refused.
    pub look: String,
}

/// What came of an attempt.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The database's words.
    pub refused: Option<String>,
    /// What the query gave.
    pub seen: String,
}

impl Attempt {
    pub fn new(tried: impl Into<String>) -> Attempt {
        Attempt { tried: tried.into(), ..Attempt::default() }
    }

    pub fn after(mut self, before: impl Into<String>) -> Attempt {
        self.before.push(before.into());
        self
    }

    pub fn look(mut self, query: impl Into<String>) -> Attempt {
        self.look = query.into();
        self
    }
}

/// Runs each attempt in a transaction of its own and rolls it back.
pub fn attempt_all(world: &World, attempts: &[Attempt]) -> Vec<Outcome> {
    let mut script = Script::default();
    let mut places = Vec::new();
    for (index, attempt) in attempts.iter().enumerate() {
        script.add(&format!("SELECT '@{index}@'"));
        script.add("BEGIN");
        let before: Vec<usize> = attempt.before.iter().map(|sql| script.add(sql)).collect();
        let tried = script.add(&attempt.tried);
        if !attempt.look.is_empty() {
            script.add(&attempt.look);
        }
        script.add("ROLLBACK");
        places.push((before, tried));
    }
    let (output, errors) = run(world, &script.text);
    let errors = by_line(&errors, world.dialect());
    let mut seen = output.split('@').skip(1).step_by(2).zip(output.split('@').skip(2).step_by(2));
    let mut outcomes = Vec::new();
    for (index, (before, tried)) in places.into_iter().enumerate() {
        let (number, rows) = seen.next().unwrap_or_else(|| panic!("no answer: {errors:?}"));
        assert_eq!(number, index.to_string(), "{output}\n{errors:?}");
        for line in before {
            let what = &attempts[index];
            assert!(!errors.contains_key(&line), "{:?} in {what:?}", errors[&line]);
        }
        let refused = errors.get(&tried).cloned();
        outcomes.push(Outcome { refused, seen: rows.trim().to_owned() });
    }
    outcomes
}

/// Every attempt must be refused, with these words.
pub fn all_refused(world: &World, attempts: &[(Attempt, &str)]) {
    let only: Vec<Attempt> = attempts.iter().map(|(attempt, _)| attempt.clone()).collect();
    let mut wrong = Vec::new();
    for (outcome, (attempt, words)) in attempt_all(world, &only).iter().zip(attempts) {
        match &outcome.refused {
            Some(said) if said.contains(words) => {}
            said => wrong.push(format!("{}\n    said {said:?}, not {words:?}", attempt.tried)),
        }
    }
    assert!(wrong.is_empty(), "{:?}:\n{}", world.dialect(), wrong.join("\n"));
}

/// Every attempt must succeed; gives what each saw.
pub fn all_accepted(world: &World, attempts: &[Attempt]) -> Vec<String> {
    let outcomes = attempt_all(world, attempts);
    for (outcome, attempt) in outcomes.iter().zip(attempts) {
        assert!(outcome.refused.is_none(), "{attempt:?}: {:?}", outcome.refused);
    }
    outcomes.into_iter().map(|outcome| outcome.seen).collect()
}

#[derive(Default)]
struct Script {
    text: String,
    lines: usize,
}

impl Script {
    /// One statement a line, so that an error's line says which statement it was.
    fn add(&mut self, sql: &str) -> usize {
        let line = sql.replace('\n', " ");
        self.text.push_str(line.trim().trim_end_matches(';'));
        self.text.push_str(";\n");
        self.lines += 1;
        self.lines
    }
}

/// Output and errors of one process that reads `script`.
pub fn run(world: &World, script: &str) -> (String, String) {
    let mut command = match &world.place {
        Place::Postgres(database) => {
            let mut command = Command::new("psql");
            command.args(["-X", "-q", "-A", "-t", "-f", "-", "-d", &database.url()]);
            command
        }
        Place::Sqlite(folder) => {
            let mut command = Command::new("sqlite3");
            command.arg("-batch").arg(file(folder));
            command
        }
    };
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("psql and sqlite3 are installed");
    let mut stdin = child.stdin.take().expect("a pipe");
    let script = script.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(script.as_bytes()));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the writer ends").expect("the program reads");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The first error of each line of the script.
fn by_line(errors: &str, dialect: Dialect) -> BTreeMap<usize, String> {
    let mut found: BTreeMap<usize, String> = BTreeMap::new();
    let mut last = None;
    for text in errors.lines() {
        let line = match dialect {
            Dialect::Postgres => text.strip_prefix("psql:<stdin>:").and_then(|t| t.split_once(':')),
            Dialect::Sqlite => text.split_once("near line ").and_then(|(_, t)| t.split_once(':')),
        };
        match line.and_then(|(number, words)| Some((number.parse::<usize>().ok()?, words))) {
            Some((number, words)) if found.contains_key(&number) => {
                last = None;
                assert!(!words.is_empty());
            }
            Some((number, words)) => {
                found.insert(number, words.trim().to_owned());
                last = Some(number);
            }
            // A hint belongs to the error before it.
            None => {
                if let Some(words) = last.and_then(|number| found.get_mut(&number)) {
                    words.push('\n');
                    words.push_str(text);
                }
            }
        }
    }
    found
}
