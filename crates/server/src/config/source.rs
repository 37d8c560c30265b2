//! Where values come from: the file with its lines, and the environment.
//!
//! Absent: sections. Every setting stands at the top of the file.

use super::Error;
use super::setting::{Kind, SETTINGS, nearest};
use toml::de::{DeTable, DeValue};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The flag of that name.
    Flag(&'static str),
    /// The variable of that name.
    Variable(String),
    /// A line of a file.
    File {
        /// The file as it was named.
        path: String,
        /// Counted from 1.
        line: usize,
    },
    /// Nobody said anything.
    Default,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Source::Flag(key) => write!(f, "--{}", key.replace('_', "-")),
            Source::Variable(name) => f.write_str(name),
            Source::File { path, line } => write!(f, "{path}, line {line}"),
            Source::Default => f.write_str("default"),
        }
    }
}

/// A value in a file.
pub struct FileEntry {
    /// The setting's key.
    pub key: String,
    /// One value, or those of an array.
    pub values: Vec<String>,
    /// The file.
    pub path: String,
    /// The line of the key, counted from 1.
    pub line: usize,
}

/// Reads a configuration file.
pub fn parse(path: &str, text: &str) -> Result<Vec<FileEntry>, Error> {
    let line_of = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(span.start));
        Error(format!("{path}, line {line}: this is no TOML: {}", error.message()))
    })?;
    let mut entries = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let name: &str = key.get_ref();
        let refuse = |what: String| Err(Error(format!("{path}, line {line}: {what}")));
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == name) else {
            let known = SETTINGS.iter().map(|setting| setting.key);
            let advice = match nearest(name, known.clone()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
            };
            return refuse(format!("unknown key `{}`; {advice}", crate::print::safe(name)));
        };
        let values = match (setting.kind, value.get_ref()) {
            (_, DeValue::Array(items)) if setting.is_list() => {
                let texts: Option<Vec<_>> =
                    items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect();
                match texts {
                    Some(texts) => texts,
                    None => return refuse(format!("`{name}` must be an array of strings")),
                }
            }
            (Kind::Milliseconds(..), DeValue::Integer(number)) => vec![number.to_string()],
            (Kind::Switch, DeValue::Boolean(switch)) => vec![switch.to_string()],
            (Kind::Milliseconds(..), _) => return refuse(format!("`{name}` must be a number")),
            (Kind::Switch, _) => return refuse(format!("`{name}` must be true or false")),
            _ if setting.is_list() => {
                return refuse(format!("`{name}` must be an array of strings"));
            }
            (_, DeValue::String(text)) => vec![text.to_string()],
            _ => return refuse(format!("`{name}` must be a string in quotes")),
        };
        entries.push(FileEntry { key: name.to_owned(), values, path: path.to_owned(), line });
    }
    Ok(entries)
}

/// Variables of ours that set nothing: those of a worker's child, and those of tests.
const OTHER_VARIABLES: &[&str] = &[
    "WINDLASS_CONFIG",
    "WINDLASS_TASK_ID",
    "WINDLASS_TASK_NAME",
    "WINDLASS_QUEUE",
    "WINDLASS_KIND",
    "WINDLASS_ATTEMPT",
    "WINDLASS_CORRELATION_ID",
    "WINDLASS_CHECKPOINT",
];

/// Variables that look like ours and set nothing, each with the name that was probably meant.
pub fn unknown_variables(variables: &[(String, String)]) -> Vec<String> {
    let known: Vec<String> = SETTINGS.iter().map(|setting| setting.variable()).collect();
    let mut found = Vec::new();
    for (name, _) in variables.iter().filter(|(name, _)| name.starts_with("WINDLASS_")) {
        // Tests of the project pass their own settings in variables with this prefix.
        let is_other =
            OTHER_VARIABLES.contains(&name.as_str()) || name.starts_with("WINDLASS_TEST");
        if is_other || known.contains(name) {
            continue;
        }
        let advice = match nearest(name, known.iter().map(String::as_str)) {
            Some(near) => format!("; did you mean {near}?"),
            None => String::new(),
        };
        found.push(format!("{} sets nothing{advice}", crate::print::safe(name)));
    }
    found.sort();
    found
}
