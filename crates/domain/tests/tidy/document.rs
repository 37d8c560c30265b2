//! Rules about documents: they exist, and what they name exists.

use crate::source::Source;
use crate::tree::{File, Finding, Tree};
use std::collections::BTreeMap;

/// What a reader or a packager looks for first.
const PROJECT_FILES: [&str; 9] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "docs/errors.md",
    "docs/state-machine.md",
];

pub fn project_files(tree: &Tree) -> Vec<Finding> {
    let missing = PROJECT_FILES.iter().filter(|path| !tree.has(path));
    missing
        .map(|path| Finding { path: (*path).to_owned(), line: 1, what: "is missing".into() })
        .collect()
}

pub fn module_docs(tree: &Tree) -> Vec<Finding> {
    let sources = tree.rust().filter(|file| file.source_crate().is_some());
    sources
        .filter(|file| !file.text.starts_with("//!"))
        .map(|file| file.finding(1, "begin with `//!`: purpose, invariant, what is absent"))
        .collect()
}

pub fn architecture_paths(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file("ARCHITECTURE.md") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (i, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            // Every second part of the line stands between backticks.
            for span in line.split('`').skip(1).step_by(2) {
                if is_path(span) && !tree.has(span) {
                    found.push(file.finding(i + 1, format!("`{span}` does not exist")));
                }
            }
        }
    }
    found
}

/// Whether a span names a file or folder of ours, and not a route, a command or a pattern.
fn is_path(span: &str) -> bool {
    let has_form = span.contains('/') || [".rs", ".sql", ".md"].iter().any(|e| span.ends_with(e));
    let is_other = span.starts_with('/') || span.contains("::") || span.contains("//");
    has_form && !is_other && !span.contains([' ', '*', '{', '<', '$', '…'])
}

pub fn error_codes(tree: &Tree) -> Vec<Finding> {
    let documented: Vec<&str> = match tree.file("docs/errors.md") {
        Some(file) => file.text.lines().filter(|l| l.starts_with(['#', '|'])).collect(),
        None => Vec::new(),
    };
    let mut found = Vec::new();
    for file in tree.rust().filter(|file| file.source_crate().is_some()) {
        for (code, line) in codes(file) {
            let quoted = format!("`{code}`");
            if !documented.iter().any(|entry| entry.contains(&quoted)) {
                let what = format!("{quoted} has no heading or table row in docs/errors.md");
                found.push(file.finding(line, what));
            }
        }
    }
    found
}

/// The codes that a file gives to users, each with the line of its first use: the strings in
/// functions called `code`, in fields called `code`, in findings about a field, and constants
/// whose name is their value.
fn codes(file: &File) -> BTreeMap<String, usize> {
    let source = Source::of(&file.text);
    let functions = source.functions();
    let is_in_code = |at: usize| {
        let mut around = functions.iter().filter(|f| (f.start..f.end).contains(&at));
        around.any(|f| f.name == "code")
    };
    // Tests give examples, and examples are no promise.
    let tests = source.code.find("#[cfg(test)]\nmod tests {").unwrap_or(source.code.len());
    let mut found = BTreeMap::new();
    for literal in source.strings.iter().filter(|literal| literal.at < tests) {
        let before = source.code[..literal.at].trim_end();
        let constant = format!("const {}: &str =", literal.text);
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        let is_plain = !literal.text.is_empty() && literal.text.chars().all(is_name);
        let is_given = is_in_code(literal.at)
            || before.ends_with(" code:")
            || source.call_around(literal.at) == "add";
        if (is_plain && is_given) || before.ends_with(&constant) {
            let line = source.line(literal.at);
            found.entry(literal.text.clone()).or_insert(line);
        }
    }
    found
}

#[test]
fn a_missing_project_file_is_found() {
    assert_eq!(project_files(&Tree::of(&[])).len(), PROJECT_FILES.len());
}

#[test]
fn a_source_file_without_docs_is_found() {
    let tree = Tree::of(&[
        ("crates/store/src/a.rs", "//! Purpose.\n"),
        ("crates/store/src/b.rs", "use x;\n"),
        ("crates/store/tests/c.rs", "use x;\n"),
    ]);
    assert_eq!(crate::tree::places(&module_docs(&tree)), [("crates/store/src/b.rs", 1)]);
}

#[test]
fn a_path_that_does_not_exist_is_found() {
    let text = "See `crates/store/src/a.rs`, `crates/store/` and `gone.md`.\n\
        `/v1/tasks`, `POST /v1/tasks`, `windlass::task`, `sql/*.sql` are no paths.\n\
        ```text\n`nor/this`\n```\n`docs/gone.md` `postgres://…`";
    let tree = Tree::of(&[("ARCHITECTURE.md", text), ("crates/store/src/a.rs", "")]);
    let found = architecture_paths(&tree);
    assert_eq!(crate::tree::places(&found), [("ARCHITECTURE.md", 1), ("ARCHITECTURE.md", 6)]);
}

#[test]
fn a_code_without_an_entry_is_found() {
    let text = "fn code(&self) -> &str {\n    match self {\n        A => \"known\",\n        \
        B => \"in_function\",\n    }\n}\nfn f() {\n    errors.add(\"/at\", \"in_finding\", \
        \"Some words\");\n    E { code: \"in_field\" };\n}\n\
        pub const TOO_LATE: &str = \"TOO_LATE\";\nconst OTHER: &str = \"none\";\n\
        #[cfg(test)]\nmod tests {\n    fn code() { \"example\" }\n}";
    let errors = "## `known`\n\n`in_function` is only mentioned.\n";
    let tree = Tree::of(&[("crates/domain/src/a.rs", text), ("docs/errors.md", errors)]);
    let found: Vec<_> = error_codes(&tree)
        .iter()
        .map(|f| (f.what.split('`').nth(1).unwrap().to_owned(), f.line))
        .collect();
    let expected = [("TOO_LATE", 11), ("in_field", 9), ("in_finding", 8), ("in_function", 4)];
    assert_eq!(found, expected.map(|(code, line)| (code.to_owned(), line)));
}
