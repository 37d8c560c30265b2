//! `tidy`: the rules of style, as a test over the whole workspace.
//!
//! Invariant: every rule is a pure function of the tree, reports all its findings with file and
//! line, and has a test with a bad example: a check that cannot fail is no check.
//! Absent: what rustfmt and clippy check already.

mod document;
mod place;
mod size;
mod source;
mod tree;

use tree::{Finding, Tree};

fn hold(rule: fn(&Tree) -> Vec<Finding>) {
    let tree = Tree::of_workspace();
    assert!(tree.files.len() > 20, "the workspace was not found");
    let findings: Vec<_> = rule(&tree).iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "\n{}\n", findings.join("\n"));
}

macro_rules! rules {
    ($($fact:ident: $rule:path;)*) => {$(
        #[test]
        fn $fact() {
            hold($rule);
        }
    )*};
}

rules! {
    no_file_is_too_long: size::files;
    no_function_is_too_long: size::functions;
    no_line_is_too_long: size::lines;
    every_source_file_begins_with_its_purpose: document::module_docs;
    every_path_in_the_architecture_exists: document::architecture_paths;
    every_code_is_documented: document::error_codes;
    every_project_file_exists: document::project_files;
    every_path_is_plain: place::odd_names;
    every_sql_file_is_used: place::unused_sql;
    sql_stands_only_in_the_store: place::sql_outside_store;
    crates_depend_in_one_direction: place::crate_direction;
    nothing_is_left_unfinished: place::unfinished;
    every_lint_that_is_switched_off_has_a_reason: place::unexplained;
}
