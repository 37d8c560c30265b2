//! How often a transaction crosses the network, counted by a proxy between store and server.

use crate::postgres::{Fixture, INSERT, item};
use crate::world::{claim_of, fail, finish_of, job};
use serde_json::json;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;
use uuid::Uuid;
use windlass_domain::agent::AgentSpec;
use windlass_domain::failure::TaskError;
use windlass_domain::id::{MessageId, TaskId};
use windlass_domain::message::{LEASE_MS, NewMessage};
use windlass_domain::replay::ReplayFrom;
use windlass_domain::step::{Effect, StepInput, check};
use windlass_store::agent::Agents;
use windlass_store::message::{Claim, Ending, Messages, Speaker, Whose};
use windlass_store::migration;
use windlass_store::postgres::{self, Options};
use windlass_store::store::{Lane, Store};
use windlass_store::task::{
    Assignment, BeginStep, Begun, Claim as Claiming, Consent, Holder, RecordStep, Replay, StepEnd,
    Tasks,
};
use windlass_store::tx::Call;

/// A proxy that counts flights: bytes from the client after bytes from the server.
struct Proxy {
    port: u16,
    flights: Arc<AtomicU32>,
    /// What the server has said so far, in bytes.
    told: Arc<AtomicUsize>,
}

impl Proxy {
    fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (flights, told) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, weighed) = (Arc::clone(&flights), Arc::clone(&told));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                connect(client, server, Arc::clone(&counted), Arc::clone(&weighed));
            }
        });
        Proxy { port, flights, told }
    }
}

fn connect(client: TcpStream, server: TcpStream, flights: Arc<AtomicU32>, told: Arc<AtomicUsize>) {
    let replied = Arc::new(AtomicBool::new(true));
    let (from_client, to_client) = (client.try_clone().unwrap(), client);
    let (from_server, to_server) = (server.try_clone().unwrap(), server);
    let seen = Arc::clone(&replied);
    pump(from_client, to_server, move |_| {
        if seen.swap(false, Ordering::SeqCst) {
            flights.fetch_add(1, Ordering::SeqCst);
        }
    });
    pump(from_server, to_client, move |bytes| {
        told.fetch_add(bytes, Ordering::SeqCst);
        // What the client sends without waiting for this answer arrives before it is handed on.
        std::thread::sleep(Duration::from_millis(50));
        replied.store(true, Ordering::SeqCst);
    });
}

fn pump(mut from: TcpStream, mut to: TcpStream, before: impl Fn(usize) + Send + 'static) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            before(count);
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[test]
fn run_and_commit_is_one_flight() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.database.port());
    let options = Options { write_connections: 1, read_connections: 1, ..Options::default() };
    let postgres = postgres::open(&fixture.database.url_through(proxy.port), options).unwrap();
    let store = Store::new(postgres);
    let flights_of = |statements: usize, together: bool| {
        let before = proxy.flights.load(Ordering::SeqCst);
        let written = store.write("flight", move |tx| {
            let call = || Call::each(&INSERT, vec![], vec![item(Uuid::now_v7(), "x")]);
            if together {
                return tx.run_and_commit((0..statements).map(|_| call()).collect()).map(drop);
            }
            for _ in 0..statements {
                tx.run(call())?;
            }
            Ok(())
        });
        fixture.runtime.block_on(written).unwrap();
        proxy.flights.load(Ordering::SeqCst) - before
    };
    // Every lane connects and the statement is prepared before we count.
    for lane in [Lane::Heartbeat, Lane::Read] {
        fixture.runtime.block_on(store.run(lane, "warm", |tx| tx.now())).unwrap();
    }
    flights_of(1, true);
    assert_eq!(flights_of(1, true), 1, "a lone statement");
    assert_eq!(flights_of(3, true), 1, "three statements with BEGIN and COMMIT");
    assert_eq!(flights_of(3, false), 4, "BEGIN travels with the first statement");
    store.close();
}

/// It took about ten: each question that the decision asks was a flight of its own. Who has sent by
/// the same way before, and the registry is the same, asks nothing.
#[test]
fn a_send_is_two_flights_and_by_a_known_way_one_also_when_a_handler_waits() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.database.port());
    let options = Options { write_connections: 1, read_connections: 1, ..Options::default() };
    let postgres = postgres::open(&fixture.database.url_through(proxy.port), options).unwrap();
    let store = Store::new(postgres);
    let agents = Agents::new(fixture.store.clone());
    let prepare = async {
        migration::up(&fixture.store).await.unwrap();
        for (name, role, parent) in [("ceo", "ceo", None), ("vp", "vp", Some("ceo"))] {
            let (role, parent) = (Some(role.to_owned()), parent.map(str::to_owned));
            let spec = AgentSpec { role, parent, ..AgentSpec::default() };
            agents.put(name, spec, "tester").await.unwrap();
        }
        // Every lane connects before we count.
        for lane in [Lane::Heartbeat, Lane::Read, Lane::Write] {
            store.run(lane, "warm", |tx| tx.now()).await.unwrap();
        }
    };
    fixture.runtime.block_on(prepare);
    let messages = Messages::new(store.clone());
    let flights_of = |messages: &Messages, waits: bool| {
        let id = MessageId(Uuid::now_v7());
        let new = NewMessage::new(id, "vp", "ceo", "report", json!({ "n": 1 }));
        let whose = Whose::Pool("ceo_handler".into());
        let offer = waits.then(|| Claim::new(whose, "me", LEASE_MS, 1));
        let offers = offer.into_iter().collect();
        let before = proxy.flights.load(Ordering::SeqCst);
        let sent = fixture.runtime.block_on(messages.send(new, Speaker::Agent, offers)).unwrap();
        let flights = proxy.flights.load(Ordering::SeqCst) - before;
        assert_eq!(sent.delivery.is_some(), waits);
        if let Some((_, held)) = sent.delivery {
            let end = messages.end(held.message.id, held.lease, Ending::Acknowledge);
            fixture.runtime.block_on(end).unwrap();
        }
        flights
    };
    // The first of each prepares its statements.
    flights_of(&messages, false);
    let fresh = Messages::new(store.clone());
    flights_of(&fresh, true);
    let of_two = || flights_of(&Messages::new(store.clone()), true);
    assert_eq!((of_two(), of_two()), (2, 2));
    // Nothing lies before what is sent now.
    let claim = Claim::new(Whose::Pool("ceo_handler".into()), "me", LEASE_MS, 1);
    let held = fixture.runtime.block_on(messages.claim(claim)).unwrap().pop().expect("the last");
    let end = messages.end(held.message.id, held.lease, Ending::Acknowledge);
    fixture.runtime.block_on(end).unwrap();
    flights_of(&fresh, true);
    assert_eq!((flights_of(&fresh, true), flights_of(&fresh, true)), (1, 1));
    assert_eq!((flights_of(&fresh, false), flights_of(&fresh, false)), (1, 1));
    store.close();
}

/// It took two: BEGIN with the statement, and COMMIT.
#[test]
fn a_read_of_one_statement_is_one_flight() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.database.port());
    let options = Options { write_connections: 1, read_connections: 1, ..Options::default() };
    let postgres = postgres::open(&fixture.database.url_through(proxy.port), options).unwrap();
    let store = Store::new(postgres);
    fixture.runtime.block_on(migration::up(&fixture.store)).unwrap();
    let tasks = Tasks::new(store.clone());
    let flights_of = |looks: bool| {
        let id = TaskId(Uuid::now_v7());
        let before = proxy.flights.load(Ordering::SeqCst);
        let found = fixture.runtime.block_on(async {
            if looks { tasks.look(id).await.unwrap() } else { tasks.show(id).await.unwrap() }
        });
        assert_eq!(found, None);
        proxy.flights.load(Ordering::SeqCst) - before
    };
    for lane in [Lane::Heartbeat, Lane::Read, Lane::Write] {
        fixture.runtime.block_on(store.run(lane, "warm", |tx| tx.now())).unwrap();
    }
    // The first of each prepares its statement.
    flights_of(true);
    flights_of(false);
    assert_eq!((flights_of(true), flights_of(false)), (1, 1));
    store.close();
}

/// It took seven, and eleven in a replay: the number of the run, the making of the task and the
/// members of its family were asked for one after the other, and COMMIT went alone.
#[test]
fn a_step_that_must_not_run_twice_begins_in_five_flights_and_in_a_replay_in_seven() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.database.port());
    let options = Options { write_connections: 1, read_connections: 1, ..Options::default() };
    let postgres = postgres::open(&fixture.database.url_through(proxy.port), options).unwrap();
    let store = Store::new(postgres);
    fixture.runtime.block_on(migration::up(&fixture.store)).unwrap();
    // What is not counted goes the straight way.
    let (near, tasks) = (Tasks::new(fixture.store.clone()), Tasks::new(store.clone()));
    let claimed = async || {
        let claim = Claiming { start: true, ..claim_of("w1", &["q"], 1) };
        near.claim(claim).await.unwrap().pop().expect("a ready task")
    };
    let flights_of = async |held: &Assignment, name: &str| {
        let input = StepInput { name, kind: None, inputs: None, occurrence: None };
        let holder = Holder::new(held.task.id, held.lease_id, "w1");
        let item = BeginStep { holder, step: check(&input).unwrap() };
        let before = proxy.flights.load(Ordering::SeqCst);
        let begun = tasks.begin_step(item).await.unwrap();
        let flights = proxy.flights.load(Ordering::SeqCst) - before;
        let Begun::New(id, run) = begun else { panic!("it may run") };
        assert!(run.is_some());
        (id, run, flights)
    };
    fixture.runtime.block_on(async {
        for lane in [Lane::Heartbeat, Lane::Read, Lane::Write] {
            store.run(lane, "warm", |tx| tx.now()).await.unwrap();
        }
        near.submit(vec![job()]).await.pop().unwrap().unwrap();
        let held = claimed().await;
        // The first of each prepares its statements.
        flights_of(&held, "warm").await;
        let (id, first, flights) = flights_of(&held, "pay").await;
        assert_eq!(flights, 5);
        let error = TaskError::new("TIMEOUT", "nothing was sent");
        let end = async || {
            let end = StepEnd::Fail { error: error.clone(), effect: Effect::None };
            near.end_step(id, held.lease_id, None, "w1".into(), end).await.unwrap();
        };
        end().await;
        let (_, second, _) = flights_of(&held, "pay").await;
        assert!(second > first);
        end().await;
        let (_, third, flights) = flights_of(&held, "pay").await;
        assert_eq!((flights, third > second), (5, true));
        near.finish(vec![finish_of(&held, fail("INVALID_INPUT"))]).await.pop().unwrap().unwrap();
        let replay = Replay {
            origin: held.task.id,
            id: TaskId(Uuid::now_v7()),
            from: ReplayFrom::Beginning,
            allow_non_idempotent: true,
            actor: "olga".into(),
        };
        near.replay(replay, Consent::Given).await.unwrap();
        let held = claimed().await;
        flights_of(&held, "warm").await;
        assert_eq!(flights_of(&held, "pay").await.2, 7);
    });
    store.close();
}

/// All results of the origin and of its family were read, under their locks.
#[test]
fn a_replay_is_planned_and_made_without_reading_results() {
    const LARGE: usize = 200_000;
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.database.port());
    let options = Options { write_connections: 1, read_connections: 1, ..Options::default() };
    let postgres = postgres::open(&fixture.database.url_through(proxy.port), options).unwrap();
    let store = Store::new(postgres);
    fixture.runtime.block_on(migration::up(&fixture.store)).unwrap();
    let (near, tasks) = (Tasks::new(fixture.store.clone()), Tasks::new(store.clone()));
    let result = format!("\"{}\"", "x".repeat(LARGE));
    // One step that may run twice and one that must not, each with a large result.
    let work = async || {
        let claim = Claiming { start: true, ..claim_of("w1", &["q"], 1) };
        let held = near.claim(claim).await.unwrap().pop().expect("a ready task");
        let input = |name| StepInput { name, kind: None, inputs: None, occurrence: None };
        let holder = || Holder::new(held.task.id, held.lease_id, "w1");
        let (step, result) = (check(&input("read")).unwrap(), result.clone());
        let item = RecordStep { holder: holder(), step, result, checkpoint: None };
        near.record_steps(vec![item]).await.pop().unwrap().unwrap();
        let item = BeginStep { holder: holder(), step: check(&input("pay")).unwrap() };
        let Begun::New(id, run) = near.begin_step(item).await.unwrap() else { panic!("new") };
        let end =
            StepEnd::Complete { result: format!("\"{}\"", "y".repeat(LARGE)), checkpoint: None };
        near.end_step(id, held.lease_id, run, "w1".into(), end).await.unwrap();
        near.finish(vec![finish_of(&held, fail("INVALID_INPUT"))]).await.pop().unwrap().unwrap();
        held.task.id
    };
    let replay = |origin, from, allow_non_idempotent| {
        let (id, actor) = (TaskId(Uuid::now_v7()), "olga".into());
        Replay { origin, id, from, allow_non_idempotent, actor }
    };
    fixture.runtime.block_on(async {
        near.submit(vec![job()]).await.pop().unwrap().unwrap();
        let origin = work().await;
        let again = replay(origin, ReplayFrom::Beginning, true);
        near.replay(again, Consent::Given).await.unwrap();
        work().await;
        let before = proxy.told.load(Ordering::SeqCst);
        let last = replay(origin, ReplayFrom::LastCheckpoint, false);
        let planned = tasks.plan_replay(last.clone()).await.unwrap();
        assert_eq!(planned.reused().count(), 2);
        tasks.replay(last, Consent::Given).await.unwrap();
        let told = proxy.told.load(Ordering::SeqCst) - before;
        assert!(told < LARGE, "{told} bytes were read");
    });
    store.close();
}
