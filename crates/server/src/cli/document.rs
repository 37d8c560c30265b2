//! Compares `docs/cli.md` with the parser's own help, so that the document cannot lie.

use super::Arguments;
use clap::CommandFactory;

const BEGIN: &str = "<!-- help begins: UPDATE_DOCS=1 cargo test -p windlass-server writes it -->";
const END: &str = "<!-- help ends -->";

fn path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md")
}

/// A section for each command, in the order of the help.
fn sections(command: &mut clap::Command, name: &str, out: &mut String) {
    let help = command.clone().bin_name(name).render_long_help().to_string();
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    out.push_str(&format!("\n### `{name}`\n\n```text\n{}\n```\n", help.join("\n").trim_end()));
    for child in command.get_subcommands_mut() {
        if child.get_name() != "help" {
            let name = format!("{name} {}", child.get_name());
            sections(child, &name, out);
        }
    }
}

#[test]
fn the_document_has_the_help_of_every_command() {
    let mut command = Arguments::command();
    command.build();
    let mut expected = String::new();
    sections(&mut command, "windlass", &mut expected);
    let text = std::fs::read_to_string(path()).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/cli.md has the mark of its help");
    let (found, after) = rest.split_once(END).expect("docs/cli.md has the end of its help");
    let expected = format!("\n{expected}\n");
    if found != expected && std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path(), format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert!(
        found == expected,
        "docs/cli.md differs from the help; run UPDATE_DOCS=1 cargo test -p windlass-server"
    );
}

#[test]
fn the_document_has_every_setting_and_every_exit_code() {
    let text = std::fs::read_to_string(path()).unwrap();
    for setting in crate::config::setting::SETTINGS {
        let row = format!("| `{}` | `{}` |", setting.key, setting.variable());
        assert!(text.contains(&row), "docs/cli.md lacks the row {row}");
    }
    for line in super::EXIT_CODES.lines().skip(1) {
        let code = line.split_whitespace().next().unwrap();
        assert!(text.contains(&format!("| {code} |")), "docs/cli.md lacks the exit code {code}");
    }
}

#[test]
fn the_parser_is_sound() {
    Arguments::command().debug_assert();
}
