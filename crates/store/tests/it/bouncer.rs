//! A real pgbouncer in transaction mode in front of a PostgreSQL server, with few server
//! connections, so that clients really share them.
//!
//! Invariant: a machine without pgbouncer fails these tests; nothing is skipped.

use crate::cluster::{as_server_user, eventually, free_port, server_user, succeed};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use uuid::Uuid;

/// How many server connections all clients of one database share.
pub const POOL: usize = 3;

/// A running pgbouncer, gone at the end.
pub struct Bouncer {
    folder: PathBuf,
    port: u16,
    process: Option<Child>,
}

impl Bouncer {
    /// Starts one before the server at `server`, a port of this machine. `settings` are lines for
    /// its file.
    pub fn start(server: u16, settings: &str) -> Bouncer {
        let folder = PathBuf::from(format!("/tmp/windlass-pb-{}", Uuid::new_v4().simple()));
        fs::create_dir(&folder).expect("/tmp is writable");
        let port = free_port();
        let conf = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\nlogfile = {}\n\
             pool_mode = transaction\ndefault_pool_size = {POOL}\nmax_client_conn = 200\n\
             server_login_retry = 0.2\n{settings}\n",
            folder.join("users").display(),
            folder.join("log").display(),
        );
        fs::write(folder.join("conf"), conf).expect("the folder is writable");
        fs::write(folder.join("users"), "\"windlass\" \"\"\n").expect("the folder is writable");
        if let Some(user) = server_user() {
            succeed(Command::new("chown").args(["-R", user]).arg(&folder));
        }
        let mut bouncer = Bouncer { folder, port, process: None };
        bouncer.run();
        bouncer
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again after it was killed.
    pub fn run(&mut self) {
        let mut command = as_server_user(&program());
        command.arg(self.folder.join("conf")).current_dir(&self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.process = Some(command.spawn().expect("pgbouncer can be started"));
        eventually("pgbouncer listens", || {
            let process = self.process.as_mut().expect("it was started");
            let ended = process.try_wait().expect("it is our child");
            assert!(ended.is_none(), "pgbouncer left: {}", self.log());
            TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    /// Kills it where it stands: all connections break.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// What it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Debian keeps it where only root's path leads.
fn program() -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut folders = path.split(':').chain(["/usr/sbin", "/usr/local/sbin"]).map(Path::new);
    let found = folders.find(|folder| folder.join("pgbouncer").is_file());
    found.expect("no pgbouncer found: run scripts/test, which installs it").join("pgbouncer")
}
