//! Configuration: flags, then environment, then `windlass.toml`, then defaults.
//!
//! Invariant: every value knows where it came from, and a wrong one is refused with the flag, the
//! variable, or the file and line that holds it. Secrets are never printed.
//! Absent: flags for keys. Everybody on a machine can read the arguments of a process.

pub mod setting;
pub mod source;

use crate::client::{self, Client};
use setting::{SETTINGS, Setting};
use source::Source;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A value that must not be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The value itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

/// What is in force.
#[derive(Clone, Debug)]
pub struct Config {
    /// `sqlite:FILE` or `postgres://…`; it may hold a password.
    pub database: String,
    /// Where the server listens.
    pub listen: SocketAddr,
    /// The URL by which other nodes reach this one.
    pub advertise: Option<String>,
    /// What nodes know each other by.
    pub cluster_key: Option<Secret>,
    /// The server that client commands talk to, without a slash at its end.
    pub server: String,
    /// The key that client commands send.
    pub key: Option<Secret>,
    /// The keys that the server accepts; none means that it asks for none.
    pub keys: Vec<Secret>,
    /// Which logs are written, as a filter.
    pub log: String,
    /// How logs are written.
    pub log_format: LogFormat,
    /// How long running requests and work may take when the server stops.
    pub shutdown_ms: u64,
    /// How long of that the server goes on as before, but says that it is not ready.
    pub shutdown_delay_ms: u64,
    /// How often the server looks for work by itself, as the safety net of wake-ups.
    pub poll_ms: u64,
    /// Whether the database may acknowledge what it has not synced.
    pub unsafe_durability: bool,
    /// Where notices are sent; none means that they are only stored.
    pub webhook_url: Vec<String>,
    /// Who gets a token with the notice of each new approval.
    pub approvers: Vec<String>,
    /// What they are signed with.
    pub webhook_secret: Option<Secret>,
    /// What they were signed with before, and are signed with too while receivers change over.
    pub webhook_secret_before: Option<Secret>,
    /// Hosts that webhooks may name although their addresses are private.
    pub webhook_allow: Vec<String>,
    /// How long notices that are not critical are collected.
    pub webhook_batch_ms: u64,
    /// How long acknowledged alerts and ended notices are kept; 0 is for ever.
    pub alert_retention_ms: u64,
    /// How many replays of a task need nobody's approval.
    pub replay_approval_threshold: u64,
    /// How long inference may wait for a provider.
    pub inference_pending_timeout_ms: u64,
    /// How long finished inference is kept.
    pub inference_retention_ms: u64,
    /// The most bytes of an inference's request, and of its result.
    pub inference_max_body: usize,
    /// The most bytes of running texts in memory.
    pub inference_memory: usize,
    /// Whether this server sweeps delegations.
    pub delegation_sweeper: bool,
    /// Whether the end of a delegation is put into its caller's inbox.
    pub delegation_result_push: bool,
    /// Every setting with its value and where it came from.
    pub entries: Vec<Entry>,
    /// What looks like a mistake but is not refused.
    pub warnings: Vec<String>,
}

/// A setting in force.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which setting.
    pub setting: &'static Setting,
    /// Its value, already masked if it is a secret; none if it is not set.
    pub shown: Option<String>,
    /// Where it came from.
    pub source: Source,
}

/// A value that was given on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The setting's key.
    pub key: &'static str,
    /// What was given.
    pub value: String,
}

/// Why a configuration is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where the layers below the flags are found.
pub struct Surroundings {
    /// The environment.
    pub variables: Vec<(String, String)>,
    /// The file that was asked for by `--config`.
    pub file: Option<PathBuf>,
    /// The folder in which `windlass.toml` is looked for.
    pub folder: PathBuf,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_process(file: Option<PathBuf>) -> Surroundings {
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        Surroundings { variables: variables.collect(), file, folder: PathBuf::from(".") }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        // An empty variable counts as unset: that is how scripts and unit files unset one.
        let found = self.variables.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// The file to read, and its text. A file that was named must be there.
    fn read(&self) -> Result<Option<(String, String)>, Error> {
        let named = self.file.clone().or_else(|| self.variable("WINDLASS_CONFIG").map(Into::into));
        let (path, is_named) = match named {
            Some(path) => (path, true),
            None => (self.folder.join("windlass.toml"), false),
        };
        let shown = path.strip_prefix(".").unwrap_or(&path).display().to_string();
        match std::fs::read_to_string(Path::new(&path)) {
            Ok(text) => Ok(Some((shown, text))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => Ok(None),
            Err(error) => {
                Err(Error(format!("{shown}: the configuration file cannot be read: {error}")))
            }
        }
    }
}

impl Config {
    /// A client of the configured server. Nothing is asked yet.
    pub fn client(&self) -> Result<Client, client::Error> {
        Client::new(&self.server, self.key.as_ref().map(Secret::reveal))
    }

    /// Puts the layers on top of each other.
    pub fn load(flags: &[Flag], around: &Surroundings) -> Result<Config, Error> {
        let file = match around.read()? {
            Some((path, text)) => source::parse(&path, &text)?,
            None => Vec::new(),
        };
        let mut found = Vec::new();
        for setting in SETTINGS {
            let flag = flags.iter().find(|flag| flag.key == setting.key);
            let variable = setting.variable();
            let given = if let Some(flag) = flag {
                Some((setting.split(&flag.value), Source::Flag(setting.key)))
            } else if let Some(value) = around.variable(&variable) {
                Some((setting.split(value), Source::Variable(variable)))
            } else if let Some(entry) = file.iter().find(|entry| entry.key == setting.key) {
                let source = Source::File { path: entry.path.clone(), line: entry.line };
                Some((entry.values.clone(), source))
            } else {
                setting.default.map(|value| (vec![value.to_owned()], Source::Default))
            };
            let (values, source) = given.unwrap_or((Vec::new(), Source::Default));
            for value in &values {
                setting.check(value).map_err(|told| Error(format!("{source}: {told}")))?;
            }
            found.push((setting, values, source));
        }
        let mut config = assemble(&found);
        config.warnings = source::unknown_variables(&around.variables);
        Ok(config)
    }

    /// Refuses to listen where strangers can reach a server that asks for no key.
    pub fn check_listen(&self) -> Result<(), String> {
        if self.listen.ip().is_loopback() || !self.keys.is_empty() {
            return Ok(());
        }
        Err(format!(
            "cannot listen on {}: no key is configured, and everybody who reaches that address \
             could submit and take work. Set WINDLASS_KEYS or `keys` in windlass.toml, or listen \
             on 127.0.0.1",
            self.listen
        ))
    }
}

fn assemble(found: &[(&'static Setting, Vec<String>, Source)]) -> Config {
    let all = |key: &str| -> &[String] {
        let entry = found.iter().find(|(setting, ..)| setting.key == key);
        entry.map_or(&[], |(_, values, _)| values)
    };
    let one = |key: &str| all(key).first().cloned();
    // Every value was checked before, and those with a default are always there.
    let number = |key: &str| one(key).and_then(|text| text.parse().ok()).unwrap_or_default();
    let duration =
        |key: &str| one(key).and_then(|text| setting::duration(&text)).unwrap_or_default();
    let text = |key: &str| one(key).unwrap_or_default();
    let url = |text: String| text.trim_end_matches('/').to_owned();
    Config {
        database: text("database"),
        listen: text("listen").parse().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0))),
        advertise: one("advertise").map(url),
        cluster_key: one("cluster_key").map(Secret),
        server: url(text("server")),
        key: one("key").map(Secret),
        keys: all("keys").iter().cloned().map(Secret).collect(),
        log: text("log"),
        log_format: match text("log_format").as_str() {
            "human" => LogFormat::Human,
            "json" => LogFormat::Json,
            _ => LogFormat::Auto,
        },
        shutdown_ms: number("shutdown_ms"),
        shutdown_delay_ms: number("shutdown_delay_ms"),
        poll_ms: number("poll_ms"),
        unsafe_durability: text("unsafe_durability") == "true",
        webhook_url: all("webhook_url").to_vec(),
        approvers: all("approvers").to_vec(),
        webhook_secret: one("webhook_secret").map(Secret),
        webhook_secret_before: one("webhook_secret_before").map(Secret),
        webhook_allow: all("webhook_allow").to_vec(),
        webhook_batch_ms: number("webhook_batch_ms"),
        alert_retention_ms: number("alert_retention_ms"),
        replay_approval_threshold: number("replay_approval_threshold"),
        inference_pending_timeout_ms: duration("inference_pending_timeout"),
        inference_retention_ms: duration("inference_retention"),
        inference_max_body: usize::try_from(number("inference_max_body")).unwrap_or(usize::MAX),
        inference_memory: usize::try_from(number("inference_memory")).unwrap_or(usize::MAX),
        delegation_sweeper: text("delegation_sweeper") == "true",
        delegation_result_push: text("delegation_result_push") == "true",
        entries: found
            .iter()
            .map(|(setting, values, source)| Entry {
                setting,
                shown: setting.shown(values),
                source: source.clone(),
            })
            .collect(),
        warnings: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
