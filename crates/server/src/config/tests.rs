//! Facts about the layers of the configuration.

use super::*;

fn around(variables: &[(&str, &str)], file: Option<&str>) -> (tempfile::TempDir, Surroundings) {
    let folder = tempfile::tempdir().unwrap();
    if let Some(text) = file {
        std::fs::write(folder.path().join("windlass.toml"), text).unwrap();
    }
    let variables =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let path = folder.path().to_owned();
    (folder, Surroundings { variables, file: None, folder: path })
}

fn load(
    flags: &[(&'static str, &str)],
    variables: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Config, Error> {
    let (_folder, around) = around(variables, file);
    let flags: Vec<Flag> =
        flags.iter().map(|(key, value)| Flag { key, value: (*value).to_owned() }).collect();
    Config::load(&flags, &around)
}

fn source(config: &Config, key: &str) -> String {
    config.entries.iter().find(|entry| entry.setting.key == key).unwrap().source.to_string()
}

#[test]
fn a_flag_beats_a_variable_beats_the_file_beats_the_default() {
    let file = "listen = \"127.0.0.1:4\"\n\npoll_ms = 40\n";
    let config = load(
        &[("listen", "127.0.0.1:2")],
        &[("WINDLASS_LISTEN", "127.0.0.1:3"), ("WINDLASS_SHUTDOWN_MS", "3"), ("WINDLASS_LOG", "")],
        Some(file),
    )
    .unwrap();
    assert_eq!(config.listen.port(), 2);
    assert_eq!((config.shutdown_ms, config.poll_ms), (3, 40));
    assert_eq!(source(&config, "listen"), "--listen");
    assert_eq!(source(&config, "shutdown_ms"), "WINDLASS_SHUTDOWN_MS");
    assert!(source(&config, "poll_ms").ends_with("windlass.toml, line 3"));
    assert_eq!(source(&config, "log"), "default");
    assert_eq!(config.database, "sqlite:windlass.db");
    assert_eq!(config.server, "http://127.0.0.1:7070");
}

#[test]
fn a_mistake_is_named_with_its_place_and_its_cure() {
    for (variables, file, words) in [
        (&[][..], "listn = \"x\"", &["line 1", "`listn`", "did you mean `listen`?"][..]),
        (&[], "\nzzz = 1", &["line 2", "known are database, listen"]),
        (&[], "listen = 7070", &["line 1", "string in quotes"]),
        (&[], "poll_ms = \"1s\"", &["line 1", "number"]),
        (&[], "poll_ms = 5", &["line 1", "from 10 to 60000"]),
        (&[], "keys = \"a\"", &["line 1", "array"]),
        (&[], "a = \n", &["line 1", "no TOML"]),
        (&[], "[server]\n", &["line 1", "string in quotes"]),
        (&[("WINDLASS_LISTEN", "localhost")], "", &["WINDLASS_LISTEN", "127.0.0.1:7070"]),
        (&[("WINDLASS_SERVER", "ftp://x")], "", &["WINDLASS_SERVER", "http://"]),
        (&[("WINDLASS_KEY", "se cret")], "", &["WINDLASS_KEY", "without spaces"]),
        (&[("WINDLASS_LOG_FORMAT", "xml")], "", &["auto, human, json"]),
    ] {
        let told = load(&[], variables, Some(file)).unwrap_err().0;
        for word in words {
            assert!(told.contains(word), "{told}");
        }
    }
}

#[test]
fn a_secret_is_never_shown() {
    let config = load(
        &[("database", "postgres://user:p@ss/word@host/db?sslmode=require&password=hunter22")],
        &[
            ("WINDLASS_KEYS", "a:secret-one-of-two, secret-two-of-two"),
            ("WINDLASS_WEBHOOK_URL", "https://x.example/secret-1, https://y.example/?secret-2"),
            ("WINDLASS_WEBHOOK_SECRET", "secret-of-the-webhooks"),
        ],
        Some("key = \"secret-key-for-me\"\n"),
    )
    .unwrap();
    let shown: Vec<_> = config.entries.iter().map(|entry| (&entry.shown, &entry.source)).collect();
    let shown = format!("{shown:?}").replace("WINDLASS_WEBHOOK_SECRET", "");
    for secret in ["secret", "p@ss", "word@", "hunter22"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("postgres://user:***@host/db"), "{shown}");
    assert!(shown.contains("(2 keys)"));
    assert!(shown.contains("https://x.example/***, https://y.example/***"), "{shown}");
    assert_eq!(config.key.as_ref().unwrap().reveal(), "secret-key-for-me");
    assert_eq!(format!("{:?}", config.key), "Some(***)");
    let told = load(&[], &[("WINDLASS_KEY", "short")], None).unwrap_err().0;
    assert!(!told.contains("short"), "{told}");
    let told = load(&[], &[("WINDLASS_SERVER", "http://me:hidden@x")], None).unwrap_err().0;
    assert!(!told.contains("hidden"), "{told}");
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let (_folder, mut around) = around(&[], None);
    assert!(Config::load(&[], &around).is_ok());
    around.file = Some(around.folder.join("other.toml"));
    let told = Config::load(&[], &around).unwrap_err().0;
    assert!(told.contains("other.toml"), "{told}");
}

#[test]
fn a_misspelt_variable_is_told_but_not_refused() {
    let variables =
        [("WINDLASS_LISTN", "x"), ("WINDLASS_TASK_ID", "x"), ("WINDLASS_TEST_POSTGRES", "x")];
    let config = load(&[], &variables, None).unwrap();
    assert_eq!(config.warnings, ["WINDLASS_LISTN sets nothing; did you mean WINDLASS_LISTEN?"]);
}

#[test]
fn beyond_loopback_a_server_needs_keys() {
    let listens = |address, keys: &[(&str, &str)]| {
        load(&[("listen", address)], keys, None).unwrap().check_listen()
    };
    assert!(listens("127.0.0.1:1", &[]).is_ok());
    assert!(listens("[::1]:1", &[]).is_ok());
    assert!(listens("0.0.0.0:1", &[("WINDLASS_KEYS", "me:long-enough-for-us")]).is_ok());
    assert!(listens("0.0.0.0:1", &[]).unwrap_err().contains("WINDLASS_KEYS"));
}
