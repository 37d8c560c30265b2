//! Servers that go away, are unsafe, are standbys, or want TLS.

use crate::cluster::{Cluster, ClusterOptions, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uuid::Uuid;
use windlass_store::error::{Error, Result};
use windlass_store::postgres::{self, Options};
use windlass_store::statement::Statement;
use windlass_store::store::Store;
use windlass_store::tx::Call;

static ONE: Statement = Statement::new("one", "", "SELECT 1");
static ENCRYPTED: Statement =
    Statement::new("tls", "", "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn works(store: &Store) -> Result<()> {
    block_on(store.write("works", |tx| tx.run(Call::one(&ONE, vec![])).map(drop)))
}

fn impatient() -> Options {
    Options { unavailable_after: Duration::from_millis(300), ..Options::default() }
}

#[test]
fn after_a_crash_of_the_server_the_next_job_succeeds() {
    let cluster = Cluster::start(ClusterOptions::default());
    let options = Options {
        write_connections: 1,
        unavailable_after: Duration::from_secs(60),
        ..Options::default()
    };
    let postgres = postgres::open(&cluster.url(), options).unwrap();
    let store = Store::new(postgres.clone());
    works(&store).unwrap();
    cluster.kill();
    cluster.run();
    works(&store).unwrap();
    assert_eq!(postgres.stats().reconnects, 1);
    // A job that comes while the server is away waits for it.
    cluster.stop("immediate");
    let waiting = store.clone();
    let job = std::thread::spawn(move || works(&waiting));
    cluster.run();
    job.join().unwrap().unwrap();
}

#[test]
fn a_job_during_an_outage_is_refused_after_the_limit_and_never_run_later() {
    let cluster = Cluster::start(ClusterOptions::default());
    let store = Store::new(postgres::open(&cluster.url(), impatient()).unwrap());
    works(&store).unwrap();
    cluster.stop("fast");
    let runs = Arc::new(AtomicU32::new(0));
    for _ in 0..3 {
        let runs = Arc::clone(&runs);
        let answer = block_on(store.write("outage", move |_| {
            runs.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }));
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    }
    cluster.run();
    crate::cluster::eventually("the lane has reconnected", || works(&store).is_ok());
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_that_may_lose_acknowledged_work_is_refused_unless_allowed() {
    let unsafe_settings =
        [("fsync", "fsync = off"), ("full_page_writes", "full_page_writes = off")];
    for (name, settings) in unsafe_settings {
        let cluster = Cluster::start(ClusterOptions { settings, ..Default::default() });
        let refused = postgres::open(&cluster.url(), Options::default()).map(drop);
        let Err(Error::Configuration(words)) = refused else { panic!("{refused:?}") };
        assert!(words.contains(name), "{words}");
        let allowed = Options { unsafe_durability: true, ..Options::default() };
        let postgres = postgres::open(&cluster.url(), allowed).unwrap();
        assert!(!postgres.durability().fsync || !postgres.durability().full_page_writes);
        works(&Store::new(postgres)).unwrap();
    }
}

#[test]
fn a_weak_synchronous_commit_is_overruled_on_the_server_and_refused_in_the_options() {
    let settings = "synchronous_commit = off";
    let cluster = Cluster::start(ClusterOptions { settings, ..Default::default() });
    let postgres = postgres::open(&cluster.url(), Options::default()).unwrap();
    assert_eq!(postgres.durability().synchronous_commit, "on");
    let synchronous_commit = postgres::SynchronousCommit::Local;
    let weak = Options { synchronous_commit, ..Options::default() };
    let refused = postgres::open(&cluster.url(), weak).map(drop);
    assert!(matches!(refused, Err(Error::Configuration(_))), "{refused:?}");
}

#[test]
fn a_standby_is_refused_and_the_primary_behind_it_is_found() {
    let primary = Cluster::start(ClusterOptions::default());
    let standby = primary.standby();
    let refused = postgres::open(&standby.url(), impatient()).map(drop);
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let both = format!(
        "postgres://windlass@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        standby.port(),
        primary.port()
    );
    let postgres = postgres::open(&both, Options::default()).unwrap();
    assert!(postgres.durability().synchronous_standby);
    let store = Store::new(postgres);
    block_on(store.write("write", |tx| tx.script("CREATE TABLE there (id int)"))).unwrap();
    assert_eq!(primary.sql("SELECT count(*) FROM there"), "0");
}

#[test]
fn wrong_credentials_are_a_matter_of_configuration() {
    let cluster = Cluster::start(ClusterOptions::default());
    let url = cluster.url().replace("windlass@", "nobody_here@");
    let refused = postgres::open(&url, Options::default()).map(drop);
    assert!(matches!(refused, Err(Error::Configuration(_))), "{refused:?}");
    let url = format!("{}_not_there", cluster.url());
    let refused = postgres::open(&url, Options::default()).map(drop);
    assert!(matches!(refused, Err(Error::Configuration(_))), "{refused:?}");
}

/// A root and a server certificate for 127.0.0.1, made with the openssl program.
struct Certificates(PathBuf);

impl Certificates {
    fn make() -> Certificates {
        let folder = PathBuf::from(format!("/tmp/windlass-tls-{}", Uuid::new_v4().simple()));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("san"), "subjectAltName=IP:127.0.0.1").unwrap();
        let run = |line: &str| {
            succeed(Command::new("openssl").args(line.split_whitespace()).current_dir(&folder))
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        run(&format!("req -x509 {key} -days 2 -subj /CN=root -keyout root.key -out root.crt"));
        run(&format!("req {key} -subj /CN=server -keyout server.key -out server.csr"));
        run("x509 -req -in server.csr -CA root.crt -CAkey root.key -CAcreateserial -days 2 \
             -extfile san -out server.crt");
        Certificates(folder)
    }

    fn root(&self) -> String {
        self.0.join("root.crt").display().to_string()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn tls_is_checked_as_far_as_the_url_asks() {
    let (ours, others) = (Certificates::make(), Certificates::make());
    let tls = Some(Path::new(&ours.0).to_owned());
    let cluster = Cluster::start(ClusterOptions { tls, ..Default::default() });
    let attempt = |host: &str, query: String| {
        let url = format!("postgres://windlass@{host}:{}/postgres?{query}", cluster.port());
        let postgres = postgres::open(&url, Options::default())?;
        let store = Store::new(postgres);
        block_on(store.write("works", |tx| tx.run(Call::one(&ENCRYPTED, vec![]))?[0].bool(0)))
    };
    let refused = |outcome: Result<bool>| {
        assert!(matches!(outcome, Err(Error::Configuration(_))), "{outcome:?}");
    };
    let (root, wrong) = (ours.root(), others.root());
    attempt("127.0.0.1", format!("sslmode=verify-full&sslrootcert={root}")).unwrap();
    assert!(attempt("127.0.0.1", "sslmode=require".into()).unwrap());
    assert!(attempt("localhost", format!("sslmode=verify-ca&sslrootcert={root}")).unwrap());
    refused(attempt("localhost", format!("sslmode=verify-full&sslrootcert={root}")));
    refused(attempt("127.0.0.1", format!("sslmode=verify-full&sslrootcert={wrong}")));
    refused(attempt("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={wrong}")));
    refused(attempt("127.0.0.1", format!("sslmode=require&sslrootcert={wrong}")));
    refused(attempt("127.0.0.1", "sslmode=verify-full&sslrootcert=/nowhere".into()));
}
