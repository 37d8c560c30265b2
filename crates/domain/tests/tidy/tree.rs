//! The files of the workspace, and what is found in them.

use std::path::Path;

/// One file, by its path from the root of the workspace, with `/` between the parts.
pub struct File {
    pub path: String,
    pub text: String,
}

impl File {
    /// Whether it is a source file of a crate: `crates/NAME/src/…`.
    pub fn is_source_of(&self, name: &str) -> bool {
        self.path.ends_with(".rs") && self.path.starts_with(&format!("crates/{name}/src/"))
    }

    /// The crate whose source file it is.
    pub fn source_crate(&self) -> Option<&str> {
        let name = self.path.strip_prefix("crates/")?.split('/').next()?;
        self.is_source_of(name).then_some(name)
    }

    pub fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }
}

/// All text files that some rule reads, and the paths of all other files.
pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    pub fn of_workspace() -> Tree {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut files = Vec::new();
        read(Path::new(root), "", &mut files);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Tree { files }
    }

    /// A small tree for the tests of the rules.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let files = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() });
        Tree { files: files.collect() }
    }

    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Whether there is such a file or folder.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
    }

    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }
}

fn read(folder: &Path, prefix: &str, files: &mut Vec<File>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().unwrap();
        let is_ours = !matches!(&*name, "target" | "node_modules" | ".git" | ".venv");
        if kind.is_dir() && is_ours {
            read(&entry.path(), &format!("{path}/"), files);
        } else if kind.is_file() {
            let is_text =
                [".rs", ".sql", ".md", ".toml"].iter().any(|ending| name.ends_with(ending));
            let text = if is_text {
                std::fs::read_to_string(entry.path()).unwrap()
            } else {
                String::new()
            };
            files.push(File { path, text });
        }
    }
}

/// What a rule objects to.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Where a rule objects, for the tests of the rules.
pub fn places(findings: &[Finding]) -> Vec<(&str, usize)> {
    findings.iter().map(|f| (&*f.path, f.line)).collect()
}
