//! The settings: one row each, with what may stand there.
//!
//! Invariant: a setting has one name everywhere: `listen` in the file, `--listen`,
//! `WINDLASS_LISTEN`.

use std::net::SocketAddr;
use windlass::domain::validate::INFERENCE_BYTES;

/// Shorter keys can be guessed.
const MIN_KEY_BYTES: usize = 16;

/// What a setting's value must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `sqlite:FILE` or `postgres://…`; its password is masked.
    Database,
    /// `ADDRESS:PORT`.
    Address,
    /// `http://…` or `https://…`.
    Url,
    /// Never shown.
    Secret,
    /// Many secrets `NAME:KEY`: an array in the file, commas between them elsewhere.
    Secrets,
    /// Many URLs, whose paths may hold a secret: an array in the file, commas elsewhere.
    Urls,
    /// Many names of people: an array in the file, commas elsewhere.
    Names,
    /// Many hosts, names or addresses: an array in the file, commas elsewhere.
    Hosts,
    /// A filter of logs.
    Filter,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// Whole milliseconds, from and to.
    Milliseconds(u64, u64),
    /// A length of time with its unit, from and to in milliseconds.
    Duration(u64, u64),
    /// A number, from and to.
    Count(u64, u64),
    /// `true` or `false`.
    Switch,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name in the file.
    pub key: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// Its value when nobody sets it.
    pub default: Option<&'static str>,
    /// What it does, in a sentence.
    pub help: &'static str,
}

const fn setting(
    key: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    help: &'static str,
) -> Setting {
    Setting { key, kind, default, help }
}

/// All settings, in the order in which `windlass config` shows them.
pub const SETTINGS: &[Setting] = &[
    setting(
        "database",
        Kind::Database,
        Some("sqlite:windlass.db"),
        "Where the server keeps everything: sqlite:FILE or postgres://USER@HOST/NAME.",
    ),
    setting(
        "listen",
        Kind::Address,
        Some("127.0.0.1:7070"),
        "Where the server listens. Beyond loopback only with `keys`.",
    ),
    setting("advertise", Kind::Url, None, "The URL by which other nodes reach this one."),
    setting(
        "cluster_key",
        Kind::Secret,
        None,
        "The key by which the nodes of one database know each other; the same on all of them.",
    ),
    setting(
        "server",
        Kind::Url,
        Some("http://127.0.0.1:7070"),
        "The server that client commands and workers talk to.",
    ),
    setting("key", Kind::Secret, None, "The key that client commands and workers send."),
    setting(
        "keys",
        Kind::Secrets,
        None,
        "The keys that the server accepts, each as NAME:KEY; the name stands in the history. \
         NAME:worker:KEY can neither decide about approvals nor read the audit.",
    ),
    setting(
        "log",
        Kind::Filter,
        Some("info"),
        "Which logs are written, such as info or info,windlass=debug.",
    ),
    setting(
        "log_format",
        Kind::Choice(&["auto", "human", "json"]),
        Some("auto"),
        "How logs are written; auto is human on a terminal and JSON otherwise.",
    ),
    setting(
        "shutdown_ms",
        Kind::Milliseconds(0, 3_600_000),
        Some("30000"),
        "How long running work may take to end when the server stops.",
    ),
    setting(
        "shutdown_delay_ms",
        Kind::Milliseconds(0, 3_600_000),
        Some("0"),
        "How long of that the server answers as before, but says that it is not ready, so that \
         load balancers notice.",
    ),
    setting(
        "poll_ms",
        Kind::Milliseconds(10, 60_000),
        Some("1000"),
        "How often the server looks for work that no wake-up told it of.",
    ),
    setting(
        "unsafe_durability",
        Kind::Switch,
        Some("false"),
        "Unsafe: start on a database that acknowledges what it has not synced to disk. A crash \
         of the machine then loses acknowledged tasks.",
    ),
    setting(
        "webhook_url",
        Kind::Urls,
        None,
        "Where notices (alerts, approvals) are sent; without any they are only stored.",
    ),
    setting(
        "approvers",
        Kind::Names,
        None,
        "Who gets a token with the notice of each new approval; needs webhook_url.",
    ),
    setting("webhook_secret", Kind::Secret, None, "What notices are signed with; see webhook_url."),
    setting(
        "webhook_secret_before",
        Kind::Secret,
        None,
        "The secret before, signed with too while receivers change over to the new one.",
    ),
    setting(
        "webhook_allow",
        Kind::Hosts,
        None,
        "Hosts that webhook_url may name although their addresses are private.",
    ),
    setting(
        "webhook_batch_ms",
        Kind::Milliseconds(0, 86_400_000),
        Some("300000"),
        "How long notices that are not critical are collected and sent together.",
    ),
    setting(
        "alert_retention_ms",
        Kind::Milliseconds(0, 315_360_000_000),
        Some("0"),
        "How long acknowledged alerts, and notices that were sent or given up, are kept; 0 is for \
         ever.",
    ),
    setting(
        "replay_approval_threshold",
        Kind::Count(0, 1_000_000),
        Some("1"),
        "How many replays of a task need nobody's approval; the next one waits for a person.",
    ),
    setting(
        "inference_pending_timeout",
        Kind::Duration(1_000, 315_360_000_000),
        Some("1h"),
        "How long an inference may wait for a provider before it fails, such as 90s, 15m or 1h.",
    ),
    setting(
        "inference_retention",
        Kind::Duration(1_000, 315_360_000_000),
        Some("7d"),
        "How long finished inferences are kept, such as 12h or 7d.",
    ),
    setting(
        "inference_max_body",
        Kind::Count(INFERENCE_BYTES.0 as u64, INFERENCE_BYTES.1 as u64),
        Some("1048576"),
        "The most bytes of an inference's request, and of its result.",
    ),
    setting(
        "inference_memory",
        Kind::Count(8 << 20, 1 << 40),
        Some("268435456"),
        "The most bytes of running inferences' texts that a node keeps in memory.",
    ),
    setting(
        "delegation_sweeper",
        Kind::Switch,
        Some("true"),
        "Whether this server ends delegations whose deadline passed or whose beats stopped; how \
         often and after how long: DELEGATION_SWEEPER_INTERVAL_S and DELEGATION_STUCK_THRESHOLD_S.",
    ),
    setting(
        "delegation_result_push",
        Kind::Switch,
        Some("true"),
        "Whether the end of a delegation is put into its caller's inbox.",
    ),
];

/// A length of time in milliseconds: a whole number with its unit.
pub fn duration(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ms)
}

impl Setting {
    /// The variable that sets it.
    pub fn variable(&self) -> String {
        format!("WINDLASS_{}", self.key.to_ascii_uppercase())
    }

    /// Whether there may be many of it.
    pub fn is_list(&self) -> bool {
        matches!(self.kind, Kind::Secrets | Kind::Urls | Kind::Hosts | Kind::Names)
    }

    /// The values of a text that came from a flag or a variable.
    pub fn split(&self, text: &str) -> Vec<String> {
        if !self.is_list() {
            return vec![text.to_owned()];
        }
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(str::to_owned).collect()
    }

    /// What is wrong with a value, and what would be right. Secrets are not repeated.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let given = crate::print::safe(value);
        match self.kind {
            Kind::Database => {
                let known = ["sqlite:", "postgres://", "postgresql://"];
                if known.iter().any(|scheme| value.starts_with(scheme)) {
                    return Ok(());
                }
                // The URL is not repeated: it may hold a password.
                Err("the database URL must begin with sqlite: or postgres://, for instance \
                     sqlite:windlass.db or postgres://user@host/database"
                    .into())
            }
            Kind::Address => value.parse::<SocketAddr>().map(|_| ()).map_err(|_| {
                format!("`{given}` is no address with a port; write for instance 127.0.0.1:7070")
            }),
            Kind::Url => check_url(value),
            Kind::Secret => check_key(value),
            Kind::Secrets => match crate::http::split_key(value) {
                ("", ..) => Err("a name is missing; write NAME:KEY, or the key alone".into()),
                (_, _, key) => check_key(key),
            },
            Kind::Urls => check_webhook(value),
            Kind::Hosts => check_host(value),
            Kind::Names => windlass::domain::approval::token_request(value, None)
                .map(drop)
                .map_err(|told| format!("`{given}` is no name of an approver: {told}")),
            Kind::Filter => {
                crate::logging::parse(value).map(|_| ()).map_err(|told| format!("`{given}` {told}"))
            }
            Kind::Choice(known) if known.contains(&value) => Ok(()),
            Kind::Choice(known) => Err(format!("`{given}` is not one of: {}", known.join(", "))),
            Kind::Count(min, max) => match value.parse::<u64>() {
                Ok(number) if (min..=max).contains(&number) => Ok(()),
                _ => Err(format!("`{given}` is no whole number from {min} to {max}")),
            },
            Kind::Milliseconds(min, max) => match value.parse::<u64>() {
                Ok(ms) if (min..=max).contains(&ms) => Ok(()),
                _ => Err(format!(
                    "`{given}` is no number of milliseconds from {min} to {max}; write for \
                     instance {}",
                    self.default.unwrap_or("1000")
                )),
            },
            Kind::Duration(min, max) => match duration(value) {
                Some(ms) if (min..=max).contains(&ms) => Ok(()),
                Some(_) => Err(format!("`{given}` is not from {min} ms to {max} ms")),
                None => Err(format!(
                    "`{given}` is no length of time; write a whole number with its unit (ms, s, m, \
                     h, d), for instance {}",
                    self.default.unwrap_or("1h")
                )),
            },
            Kind::Switch if ["true", "false"].contains(&value) => Ok(()),
            Kind::Switch => Err(format!("`{given}` is neither true nor false")),
        }
    }

    /// The values as they may be shown.
    pub fn shown(&self, values: &[String]) -> Option<String> {
        let first = values.first()?;
        Some(match self.kind {
            Kind::Secret => "***".into(),
            Kind::Secrets if values.len() == 1 => "*** (1 key)".into(),
            Kind::Secrets => format!("*** ({} keys)", values.len()),
            Kind::Database | Kind::Url => masked(first),
            Kind::Urls => values.iter().map(|url| origin(url)).collect::<Vec<_>>().join(", "),
            Kind::Hosts | Kind::Names => values.join(", "),
            _ => first.clone(),
        })
    }
}

fn check_key(key: &str) -> Result<(), String> {
    if !key.chars().all(|c| c.is_ascii_graphic()) {
        return Err("a key must be printable ASCII without spaces".into());
    }
    if key.len() < MIN_KEY_BYTES {
        return Err(format!("a key must have {MIN_KEY_BYTES} characters at least"));
    }
    Ok(())
}

fn check_url(value: &str) -> Result<(), String> {
    let wrong = |what: &str| {
        let shown = masked(&crate::print::safe(value));
        Err(format!("`{shown}` {what}; write for instance http://127.0.0.1:7070"))
    };
    match reqwest::Url::parse(value) {
        Ok(url) if !["http", "https"].contains(&url.scheme()) => {
            wrong("is not http:// or https://")
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            wrong("holds a user or a password; give the key by WINDLASS_KEY")
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            wrong("must end after its path")
        }
        Ok(_) => Ok(()),
        Err(error) => wrong(&format!("is no URL ({error})")),
    }
}

/// A webhook: unlike our own addresses it may have a query.
fn check_webhook(value: &str) -> Result<(), String> {
    let example = "write for instance https://hooks.example.com/windlass";
    // The URL is not repeated: its path may hold a secret.
    match reqwest::Url::parse(value) {
        Ok(url) if !["http", "https"].contains(&url.scheme()) => {
            Err(format!("a webhook is not http:// or https://; {example}"))
        }
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Err(format!("a webhook holds a user or a password; {example}"))
        }
        Ok(url) if url.fragment().is_some() => {
            Err(format!("a webhook has a fragment, which is never sent; {example}"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(format!("a webhook is no URL ({error}); {example}")),
    }
}

fn check_host(value: &str) -> Result<(), String> {
    let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:[]".contains(c);
    if value.is_empty() || !value.chars().all(is_host) {
        let given = crate::print::safe(value);
        return Err(format!("`{given}` is no host; write a name or an address, without a port"));
    }
    Ok(())
}

/// What may be shown of a webhook.
fn origin(url: &str) -> String {
    let origin = reqwest::Url::parse(url).map(|url| url.origin().ascii_serialization());
    format!("{}/***", origin.unwrap_or_default())
}

/// A URL without its password, in the authority or in the query.
pub fn masked(url: &str) -> String {
    let mut out = url.to_owned();
    if let Some((scheme, rest)) = url.split_once("://") {
        let end = rest.find(['?', '#']).unwrap_or(rest.len());
        // A password may hold an `@`, or even a `/`: everything up to the last `@` is hidden.
        let at = rest[..end].rfind('@');
        if let Some(at) = at
            && let Some((user, _)) = rest[..at].split_once(':')
        {
            out = format!("{scheme}://{user}:***{}", &rest[at..]);
        }
    }
    for name in ["password=", "sslpassword="] {
        if let Some(start) = out.find(name).map(|at| at + name.len()) {
            let end = out[start..].find('&').map_or(out.len(), |length| start + length);
            out.replace_range(start..end, "***");
        }
    }
    out
}

/// The known name that is nearest to a misspelt one, if one is near.
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_ascii_lowercase();
    let distances = known.map(|name| (distance(&given, &name.to_ascii_lowercase()), name));
    let (distance, name) = distances.min()?;
    (distance <= 1 + given.chars().count() / 4).then_some(name)
}

/// How many characters must be added, removed or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, c) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let changed = diagonal + usize::from(c != *other);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
