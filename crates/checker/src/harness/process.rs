//! Real processes: `windlass serve` and workers, started, killed, stopped and started again.

use crate::load::{WorkerPlan, is_ready, raise_limits};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a server may take until it is ready.
const START: Duration = Duration::from_secs(90);
/// How long it may take to stop when it is asked to.
const STOP: Duration = Duration::from_secs(20);

/// The program `windlass`: the file in `WINDLASS_BIN`, or what cargo makes of the sources now.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(find_or_build)
}

fn find_or_build() -> PathBuf {
    if let Some(path) = std::env::var_os("WINDLASS_BIN") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "WINDLASS_BIN names no file: {}", path.display());
        return path;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--quiet", "-p", "windlass-server", "--bin", "windlass"];
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let built = Command::new(cargo).args(arguments).current_dir(root).status();
    assert!(built.is_ok_and(|status| status.success()), "windlass could not be built");
    // A test runs from `<target>/<profile>/deps`; programs lie one folder above.
    let test = std::env::current_exe().expect("a test knows its own file");
    let folder = test.parent().and_then(Path::parent).expect("a test lies in a target folder");
    let path = folder.with_file_name("debug").join("windlass");
    assert!(path.is_file(), "cargo built windlass elsewhere than {}", path.display());
    path
}

/// A port that nobody uses at the moment.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("a bound port").port()
}

/// The program without the settings of whoever runs the tests.
fn windlass() -> Command {
    let mut command = Command::new(binary());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WINDLASS_") {
            command.env_remove(name);
        }
    }
    command
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("our own process takes signals");
}

/// A node.
pub struct Server {
    database: String,
    port: u16,
    folder: PathBuf,
    child: Option<Child>,
    starts: usize,
}

impl Server {
    /// Brings the database's schema up and starts a node on it.
    pub async fn start(database: &str, folder: &Path) -> Server {
        let migrated = windlass()
            .args(["migrate", "up", "--database", database])
            .output()
            .expect("windlass runs");
        let told = String::from_utf8_lossy(&migrated.stderr).into_owned();
        assert!(migrated.status.success(), "windlass migrate up failed: {told}");
        let (database, folder) = (database.to_owned(), folder.to_owned());
        let mut server = Server { database, port: free_port(), folder, child: None, starts: 0 };
        server.run().await;
        // An outage lets more wait than a fresh installation takes.
        raise_limits(&server.url()).await;
        server
    }

    /// The base URL; it stays the same when the node is started again.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Starts the node after it was killed, and waits until it is ready.
    pub async fn run(&mut self) {
        self.starts += 1;
        let name = format!("node-{}-{}.output", self.port, self.starts);
        let output = File::create(self.folder.join(&name)).expect("the folder is writable");
        let errors = output.try_clone().expect("a second handle");
        let child = windlass()
            .args(["serve", "--listen", &format!("127.0.0.1:{}", self.port)])
            .args(["--database", &self.database])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .expect("windlass runs");
        self.child = Some(child);
        let end = Instant::now() + START;
        while !is_ready(&self.url()).await {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            let late = Instant::now() > end;
            if ended.is_some() || late {
                let told = std::fs::read_to_string(self.folder.join(&name)).unwrap_or_default();
                panic!("the node did not become ready ({ended:?}):\n{told}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own process can be killed");
            child.wait().expect("our own process can be waited for");
        }
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        signal(&child, Signal::TERM);
        let end = Instant::now() + STOP;
        while child.try_wait().expect("our own process can be waited for").is_none() {
            if Instant::now() > end {
                let _ = child.kill();
                let _ = child.wait();
                panic!("the node did not stop within {STOP:?} after SIGTERM");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A worker in a process of its own.
pub struct WorkerProcess {
    child: Child,
}

impl WorkerProcess {
    /// Starts one; `program` is the crate's own `windlass-load-worker`.
    pub fn start(program: &str, plan: &WorkerPlan) -> WorkerProcess {
        let json = serde_json::to_string(plan).expect("a plan is plain data");
        let output = File::create(plan.folder.join(format!("{}.output", plan.name)));
        let output = output.expect("the folder is writable");
        let child = Command::new(program).arg(json).stdin(Stdio::null()).stderr(output).spawn();
        WorkerProcess { child: child.expect("the worker runs") }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it where it is: a machine that hangs, a long garbage collection.
    pub fn pause(&self) {
        signal(&self.child, Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        signal(&self.child, Signal::CONT);
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
