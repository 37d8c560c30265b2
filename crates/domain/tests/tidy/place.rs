//! Rules about where things stand: SQL in the store, crates in one direction, nothing unfinished.

use crate::source::Source;
use crate::tree::{Finding, Tree};

pub fn unused_sql(tree: &Tree) -> Vec<Finding> {
    let used: Vec<String> = tree
        .rust()
        .filter(|file| file.is_source_of("store"))
        .flat_map(|file| Source::of(&file.text).strings)
        .map(|literal| literal.text)
        .collect();
    let mut found = Vec::new();
    for file in &tree.files {
        let Some(path) = file.path.strip_prefix("crates/store/sql/") else {
            continue;
        };
        let name = path.trim_end_matches(".sql");
        let name = name.trim_end_matches(".sqlite").trim_end_matches(".postgres");
        // A template is included by its path; every other file is named by a `statement!`.
        let included = format!("/sql/{path}");
        if !used.iter().any(|literal| literal == name || literal.ends_with(&included)) {
            let what = format!("no `statement!` names \"{name}\": use it or remove it");
            found.push(file.finding(1, what));
        }
    }
    found
}

/// A path that a shell would take apart was not meant to be one.
pub fn odd_names(tree: &Tree) -> Vec<Finding> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let odd = tree.files.iter().filter(|file| !file.path.chars().all(is_plain));
    odd.map(|file| file.finding(1, "a path has letters, digits, `.`, `_` and `-`")).collect()
}

pub fn sql_outside_store(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        if file.source_crate().is_none_or(|name| name == "store") {
            continue;
        }
        let source = Source::of(&file.text);
        for literal in &source.strings {
            if is_sql(&literal.text) {
                let what = "SQL outside crates/store: make it a statement of the store";
                found.push(file.finding(source.line(literal.at), what));
            }
        }
    }
    found
}

/// A text that has the shape of a statement: its keywords in capitals, or in any case when it
/// begins with them. "select one from the list" in the middle of a sentence is no SQL.
fn is_sql(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    (0..words.len()).any(|i| {
        let rest = &words[i..];
        let is = |at: usize, keyword: &str| {
            rest.get(at).is_some_and(|word| {
                *word == keyword || (i == 0 && word.eq_ignore_ascii_case(keyword))
            })
        };
        let later = |keyword: &str| (2..rest.len()).any(|at| is(at, keyword));
        (is(0, "SELECT") && later("FROM"))
            || (is(0, "INSERT") && is(1, "INTO"))
            || (is(0, "UPDATE") && is(2, "SET"))
            || (is(0, "DELETE") && is(1, "FROM"))
    })
}

/// Which of our crates a crate may depend on.
const DIRECTION: [(&str, &[&str]); 5] = [
    ("domain", &[]),
    ("store", &["windlass-domain"]),
    ("windlass", &["windlass-domain", "windlass-store"]),
    ("server", &["windlass-domain", "windlass-store", "windlass"]),
    // Beside the line: a witness, on which nobody depends.
    ("checker", &["windlass-domain", "windlass-store", "windlass"]),
];

pub fn crate_direction(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in &tree.files {
        let manifest = file.path.strip_prefix("crates/");
        let Some(name) = manifest.and_then(|path| path.strip_suffix("/Cargo.toml")) else {
            continue;
        };
        let Some((_, allowed)) = DIRECTION.iter().find(|(known, _)| *known == name) else {
            let what = "a crate that tidy does not know: say what it may depend on";
            found.push(file.finding(1, what));
            continue;
        };
        for (line, dependency) in dependencies(&file.text) {
            let is_ours = dependency == "windlass" || dependency.starts_with("windlass-");
            if is_ours && !allowed.contains(&dependency) {
                let what = format!("{name} may not depend on {dependency}");
                found.push(file.finding(line, what));
            }
        }
    }
    found
}

/// The dependencies of a manifest of every sort, with their lines.
fn dependencies(manifest: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_list = false;
    for (i, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            is_list = section.ends_with("dependencies");
            if let Some((_, name)) = section.split_once("dependencies.") {
                found.push((i + 1, name));
            }
        } else if is_list && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.push((i + 1, name));
        }
    }
    found
}

pub fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let source = Source::of(&file.text);
        for mark in ["todo!", "unimplemented!", "dbg!", "#[ignore"] {
            for (at, _) in source.code.match_indices(mark) {
                let what = format!("`{mark}`: finish it, or leave it out");
                found.push(file.finding(source.line(at), what));
            }
        }
    }
    found
}

/// A lint that is switched off says why, on its line or on the one before.
pub fn unexplained(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        let source = Source::of(&file.text);
        let lines: Vec<&str> = file.text.lines().collect();
        for mark in ["#[allow(", "#![allow(", "#[expect(", "#![expect("] {
            for (at, _) in source.code.match_indices(mark) {
                let line = source.line(at);
                let before = line.checked_sub(2).and_then(|n| lines.get(n));
                let is_explained = lines.get(line - 1).is_some_and(|text| text.contains("// "))
                    || before.is_some_and(|text| text.trim_start().starts_with("// "));
                if !is_explained {
                    found.push(file.finding(line, format!("`{mark}`: say why in a comment")));
                }
            }
        }
    }
    found
}

#[test]
fn an_unused_statement_is_found() {
    let tree = Tree::of(&[
        ("crates/store/sql/task/claim.sqlite.sql", ""),
        ("crates/store/sql/task/claim.postgres.sql", ""),
        ("crates/store/sql/task/show.sql", ""),
        ("crates/store/sql/task/old.sql", ""),
        (
            "crates/store/src/task.rs",
            "statement!(CLAIM, \"task/claim\");\nstatement!(shared SHOW, \"task/show\");\n\
             // statement!(shared OLD, \"task/old\");",
        ),
    ]);
    let found = unused_sql(&tree);
    assert_eq!(crate::tree::places(&found), [("crates/store/sql/task/old.sql", 1)]);
}

#[test]
fn an_odd_path_is_found() {
    let tree = Tree::of(&[("crates/a/src/b_c-1.rs", ""), (".ci/run", ""), ("a/select 1", "")]);
    let found: Vec<_> = odd_names(&tree).iter().map(|found| found.path.clone()).collect();
    assert_eq!(found, ["a/select 1"]);
}

#[test]
fn sql_in_another_crate_is_found() {
    let bad = "fn f() {\n    g(\"SELECT id FROM task\");\n    g(\"with x; UPDATE task SET a = 1\");\
        \n\n    g(\"insert into task values (1)\");\n    g(\"DELETE FROM task\");\n}";
    let good = "// SELECT id FROM task\nfn f() { g(\"please select one from the list\"); }";
    let tree = Tree::of(&[
        ("crates/server/src/bad.rs", bad),
        ("crates/server/src/good.rs", good),
        ("crates/store/src/fine.rs", bad),
    ]);
    let lines: Vec<_> = sql_outside_store(&tree).iter().map(|f| f.line).collect();
    assert_eq!(lines, [2, 3, 5, 6]);
}

#[test]
fn a_dependency_in_the_wrong_direction_is_found() {
    let tree = Tree::of(&[
        (
            "crates/domain/Cargo.toml",
            "[package]\nname = \"windlass-domain\"\n[dependencies]\nserde = \"1\"\n\
             windlass-store.workspace = true\n[dev-dependencies.windlass]\npath = \"..\"",
        ),
        ("crates/store/Cargo.toml", "[dependencies]\nwindlass-domain = { path = \"..\" }"),
        ("crates/windlass/Cargo.toml", "[dev-dependencies]\nwindlass-server.workspace = true"),
        ("crates/new/Cargo.toml", ""),
    ]);
    let found = crate_direction(&tree);
    assert_eq!(
        crate::tree::places(&found),
        [
            ("crates/domain/Cargo.toml", 5),
            ("crates/domain/Cargo.toml", 6),
            ("crates/windlass/Cargo.toml", 2),
            ("crates/new/Cargo.toml", 1),
        ]
    );
}

#[test]
fn unfinished_work_is_found() {
    let text = "fn f() {\n    todo!()\n}\n#[ignore = \"slow\"]\nfn g() { dbg!(1); \"todo!\"; }";
    let lines: Vec<_> = unfinished(&Tree::of(&[("a.rs", text)])).iter().map(|f| f.line).collect();
    assert_eq!(lines, [2, 5, 4]);
}

#[test]
fn a_lint_that_is_switched_off_without_a_reason_is_found() {
    let text = "#[allow(dead_code)] // Others use it.\nfn f() {}\n// The names say it.\n\
                #[allow(missing_docs)]\nstruct A;\n\n#[allow(missing_docs)]\nstruct B;";
    let lines: Vec<_> = unexplained(&Tree::of(&[("a.rs", text)])).iter().map(|f| f.line).collect();
    assert_eq!(lines, [7]);
}
