//! Logs: lines for people on a terminal, JSON for everybody else.
//!
//! Invariant: logs go to standard error, so that standard output holds answers only. Whoever reads
//! them may go away: the process goes on.

use crate::config::LogFormat;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;

/// Begins to log, for the life of the process. A second call changes nothing.
pub fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = parse(filter)?;
    let is_terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A line that cannot be written is lost. Told on standard error it would end the process.
        .log_internal_errors(false);
    let is_human = match format {
        LogFormat::Auto => is_terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    // Somebody has set a subscriber before: then theirs stands.
    let _ = if is_human {
        let has_colour = crate::print::allows_colour(is_terminal);
        builder.with_ansi(has_colour).with_target(false).try_init()
    } else {
        builder.json().flatten_event(true).with_current_span(true).try_init()
    };
    Ok(())
}

/// Whether a text is a filter such as `info,windlass=debug`.
pub fn parse(filter: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(filter)
        .map_err(|_| "is no log filter; write for instance info or info,windlass=debug".to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_filter_that_means_nothing_is_refused_with_an_example() {
        assert!(super::parse("info,windlass=debug").is_ok());
        let told = super::parse("windlass=loud").unwrap_err();
        assert!(told.contains("info"), "{told}");
    }
}
