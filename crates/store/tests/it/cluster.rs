//! Real PostgreSQL servers for tests: a database in the shared cluster of `scripts/with-postgres`,
//! or a private cluster that a test may break.
//!
//! Invariant: a machine without PostgreSQL fails these tests; nothing is skipped.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// A fresh database in the shared cluster, dropped at the end.
pub struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// Creates an empty database.
    pub fn create() -> TestDatabase {
        TestDatabase::create_from("template1")
    }

    /// Creates a copy of a database that nobody uses at the moment.
    pub fn create_from(template: &str) -> TestDatabase {
        let server = std::env::var("WINDLASS_TEST_POSTGRES").unwrap_or_else(|_| {
            panic!(
                "WINDLASS_TEST_POSTGRES is not set: run scripts/test, or scripts/with-postgres \
                 in front of your command"
            )
        });
        let authority = server.find("://").map_or(0, |at| at + 3);
        let server = match server[authority..].find('/') {
            Some(path) => server[..authority + path].to_owned(),
            None => server,
        };
        let name = format!("test_{}", Uuid::new_v4().simple());
        let database = TestDatabase { server, name };
        psql(
            &database.admin_url(),
            &format!("CREATE DATABASE {} TEMPLATE {template}", database.name),
        );
        database
    }

    /// The name of this database.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The superuser's URL of this database.
    pub fn url(&self) -> String {
        format!("{}/{}", self.server, self.name)
    }

    /// The same through another port of this machine: that of a proxy.
    pub fn url_through(&self, port: u16) -> String {
        let (_, rest) = self.server.split_once("://").expect("a URL");
        let user = rest.rsplit_once('@').map_or("windlass", |(user, _)| user);
        format!("postgres://{user}@127.0.0.1:{port}/{}", self.name)
    }

    /// The server's port.
    pub fn port(&self) -> u16 {
        let port = self.server.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        port.expect("WINDLASS_TEST_POSTGRES names a port")
    }

    /// What `sql` gives, by a connection of its own.
    pub fn sql(&self, sql: &str) -> String {
        psql(&self.url(), sql)
    }

    fn admin_url(&self) -> String {
        format!("{}/postgres", self.server)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // Dropping makes the server checkpoint; a cluster that goes away anyhow is spared that.
        if std::env::var_os("WINDLASS_TEST_POSTGRES_IS_TEMPORARY").is_some() {
            return;
        }
        let drop = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let _ = try_psql(&self.admin_url(), &drop);
    }
}

/// How a private cluster differs from a plain one.
#[derive(Default)]
pub struct ClusterOptions {
    /// Lines for postgresql.conf.
    pub settings: &'static str,
    /// Serve TLS with the certificate `server.crt` and the key `server.key` of this folder.
    pub tls: Option<PathBuf>,
}

/// A private cluster in a temporary folder, removed at the end.
pub struct Cluster {
    folder: PathBuf,
    port: u16,
}

impl Cluster {
    /// Makes a cluster and starts it.
    pub fn start(options: ClusterOptions) -> Cluster {
        let cluster = Cluster::folder();
        let data = cluster.data();
        let mut initdb = cluster.server_command("initdb");
        initdb.args(["-U", "windlass", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
        succeed(initdb.arg("-D").arg(&data));
        let mut conf = fs::read_to_string(data.join("postgresql.conf")).expect("initdb wrote it");
        conf.push_str(&format!(
            "listen_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n\
             shared_buffers = 16MB\nmax_connections = 50\nlog_min_messages = warning\n{}\n",
            cluster.folder.display(),
            options.settings
        ));
        if let Some(tls) = &options.tls {
            for file in ["server.crt", "server.key"] {
                fs::copy(tls.join(file), data.join(file)).expect("the certificate is there");
                succeed(Command::new("chmod").arg("600").arg(data.join(file)));
                cluster.give_to_server(&data.join(file));
            }
            conf.push_str("ssl = on\n");
        }
        fs::write(data.join("postgresql.conf"), conf).expect("the folder is writable");
        cluster.run();
        cluster
    }

    fn folder() -> Cluster {
        // A short path: that of a Unix socket may have 107 bytes at most.
        let folder = PathBuf::from(format!("/tmp/windlass-it-{}", Uuid::new_v4().simple()));
        fs::create_dir(&folder).expect("/tmp is writable");
        let cluster = Cluster { folder, port: free_port() };
        cluster.give_to_server(&cluster.folder);
        cluster
    }

    /// A standby of this cluster that streams from it; commits wait for it from now on.
    pub fn standby(&self) -> Cluster {
        let standby = Cluster::folder();
        let source =
            format!("host=127.0.0.1 port={} user=windlass application_name=standby", self.port);
        let mut backup = standby.server_command("pg_basebackup");
        backup.args(["-R", "-X", "stream", "--no-sync", "-c", "fast", "-d", &source]);
        succeed(backup.arg("-D").arg(standby.data()));
        standby.run();
        self.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
        self.sql("SELECT pg_reload_conf()");
        eventually("the standby is synchronous", || {
            self.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
        });
        standby
    }

    /// The superuser's URL.
    pub fn url(&self) -> String {
        format!("postgres://windlass@127.0.0.1:{}/postgres", self.port)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What `sql` gives, by a connection of its own.
    pub fn sql(&self, sql: &str) -> String {
        psql(&self.url(), sql)
    }

    /// Starts the server after it was stopped or killed.
    pub fn run(&self) {
        let port = format!("-p {}", self.port);
        // The processes of a killed server need a moment to notice and to let go.
        eventually("the server starts", || {
            let mut start = self.server_command("pg_ctl");
            start.args(["-w", "-o", &port, "start", "-D"]).arg(self.data());
            start.arg("-l").arg(self.folder.join("log"));
            start.output().is_ok_and(|output| output.status.success())
        });
    }

    /// Stops the server: `fast` or `immediate`.
    pub fn stop(&self, mode: &str) {
        let mut stop = self.server_command("pg_ctl");
        succeed(stop.args(["-w", "-m", mode, "stop", "-D"]).arg(self.data()));
    }

    /// Kills the server's first process; the others leave when they notice.
    pub fn kill(&self) {
        let pids = self.pids();
        signal("KILL", &pids[..1]);
        eventually("the killed server's processes leave", || {
            pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
        });
    }

    /// Stops all its processes where they are: a machine that hangs.
    pub fn pause(&self) {
        signal("STOP", &self.pids());
    }

    /// Lets them go on.
    pub fn resume(&self) {
        signal("CONT", &self.pids());
    }

    fn pids(&self) -> Vec<String> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).unwrap_or_default();
        let Some(first) = file.lines().next() else {
            return Vec::new();
        };
        let mut pids = vec![first.to_owned()];
        pids.extend(processes().filter(|(_, parent)| parent == first).map(|(pid, _)| pid));
        pids
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn give_to_server(&self, path: &Path) {
        if let Some(user) = server_user() {
            succeed(Command::new("chown").arg(user).arg(path));
        }
    }

    /// A server program, as a user that the server accepts.
    fn server_command(&self, program: &str) -> Command {
        let mut command = as_server_user(&server_programs().join(program));
        command.current_dir(&self.folder);
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.resume();
        let mut stop = self.server_command("pg_ctl");
        let _ = stop.args(["-w", "-m", "immediate", "stop", "-D"]).arg(self.data()).output();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Waits for something that another process will do; a minute is for ever.
pub fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < end, "this did not happen: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command that must succeed and gives its trimmed output.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}{errors}", text(&output.stdout));
    text(&output.stdout).trim().to_owned()
}

/// What `sql` gives on the server at `url`.
pub fn psql(url: &str, sql: &str) -> String {
    let output = try_psql(url, sql);
    assert!(output.status.success(), "{sql}: {}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

fn try_psql(url: &str, sql: &str) -> Output {
    let mut command = Command::new(server_programs().join("psql"));
    command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, url]);
    command.output().expect("psql runs")
}

/// Sends a signal to processes.
pub fn signal(name: &str, pids: &[String]) {
    if !pids.is_empty() {
        // The shell's own kill: a bare machine has no program of that name.
        let line = format!("kill -{name} {}", pids.join(" "));
        let _ = Command::new("sh").arg("-c").arg(line).output();
    }
}

/// Every process with its parent.
fn processes() -> impl Iterator<Item = (String, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name in parentheses may hold anything; the state and the parent follow it.
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.to_owned();
        Some((entry.file_name().into_string().ok()?, parent))
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A port that nobody listens on at the moment.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound port").port()
}

/// A program that refuses to run as root, as a user whom it accepts.
pub fn as_server_user(program: &Path) -> Command {
    let Some(user) = server_user() else {
        return Command::new(program);
    };
    let group = succeed(Command::new("id").args(["-g", user]));
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
    command.arg("--clear-groups").arg(program);
    command
}

/// The server refuses to run as root.
pub fn server_user() -> Option<&'static str> {
    static USER: OnceLock<Option<&'static str>> = OnceLock::new();
    *USER.get_or_init(find_server_user)
}

fn find_server_user() -> Option<&'static str> {
    let exists = |user: &str| {
        Command::new("id").arg(user).output().is_ok_and(|output| output.status.success())
    };
    match succeed(Command::new("id").arg("-u")).as_str() {
        "0" if exists("postgres") => Some("postgres"),
        "0" => Some("nobody"),
        _ => None,
    }
}

/// The folder with the newest server programs. Looked for once: that starts several processes, and
/// every statement by hand needs the answer.
fn server_programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(find_server_programs)
}

fn find_server_programs() -> PathBuf {
    let version = |folder: &Path| {
        let output = Command::new(folder.join("postgres")).arg("--version").output().ok()?;
        let words = text(&output.stdout);
        let number = words.split(|c: char| !c.is_ascii_digit()).find(|word| !word.is_empty())?;
        number.parse::<u32>().ok()
    };
    let packaged = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = packaged.map(|entry| entry.path().join("bin")).collect();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        folders.push(PathBuf::from(text(&output.stdout).trim()));
    }
    let found = folders.into_iter().filter_map(|folder| Some((version(&folder)?, folder)));
    let newest = found.filter(|(version, _)| *version >= 15).max();
    newest.expect("no PostgreSQL >= 15 found: run scripts/test, which installs it").1
}
