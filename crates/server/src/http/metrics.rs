//! Metrics: what the server counts by itself, and what it asks the engine for at each scrape.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use windlass::Engine;
use windlass::domain::limit::Level;
use windlass::store::message::Depth;
use windlass::store::task::Counts;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    method: String,
    route: String,
    status: u32,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    status: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    queue: String,
    kind: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DutyLabels {
    duty: String,
    what: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NoticeLabels {
    what: String,
}

/// All metrics of a server.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<RouteLabels, Histogram>,
    tasks: Family<StateLabels, Gauge>,
    ready: Family<QueueLabels, Gauge>,
    duties: Family<DutyLabels, Gauge>,
    notices: Family<NoticeLabels, Gauge>,
    idle_workers: Gauge,
    open_waits: Gauge,
    pressure: Pressure,
    inboxes: Inboxes,
}

/// What lies in the inboxes of agents.
#[derive(Default)]
struct Inboxes {
    messages: Family<StateLabels, Gauge>,
    oldest: Gauge<f64, AtomicU64>,
    dead_letters: Gauge,
}

impl Inboxes {
    fn register(&self, registry: &mut Registry) {
        let messages = "Messages on their way: pending in inboxes, delivered to handlers";
        registry.register("messages", messages, self.messages.clone());
        let oldest = "How long the oldest pending message has lain in its inbox";
        registry.register("message_oldest_pending_seconds", oldest, self.oldest.clone());
        let letters = "Dead letters that need a person";
        registry.register("dead_letters_open", letters, self.dead_letters.clone());
    }

    fn set(&self, depth: &Depth) {
        for (status, count) in [("pending", depth.pending), ("delivered", depth.delivered)] {
            let labels = StateLabels { status: status.to_owned() };
            self.messages.get_or_create(&labels).set(count);
        }
        self.oldest.set(depth.oldest_pending_ms as f64 / 1_000.0);
        self.dead_letters.set(depth.dead_letters);
    }
}

/// How close the system is to its limits.
#[derive(Default)]
struct Pressure {
    level: Gauge,
    utilization: Gauge<f64, AtomicU64>,
    depth: Gauge,
    wait: Gauge<f64, AtomicU64>,
}

impl Pressure {
    fn register(&self, registry: &mut Registry) {
        let level = "How hard the system is pressed: 0 normal, 1 elevated, 2 critical";
        registry.register("backpressure_level", level, self.level.clone());
        let utilization = "Active tasks, as a part of those allowed";
        registry.register("backpressure_utilization_ratio", utilization, self.utilization.clone());
        let depth = "Pending tasks, retries included";
        registry.register("backpressure_queue_depth", depth, self.depth.clone());
        let wait = "How long a task submitted now would wait; NaN when nothing moves";
        registry.register("backpressure_estimated_wait_seconds", wait, self.wait.clone());
    }

    fn set(&self, engine: &Engine) {
        let told = engine.backpressure();
        let place = Level::ALL.iter().position(|level| *level == told.level);
        self.level.set(place.unwrap_or_default() as i64);
        self.utilization.set(told.global_utilization / 100.0);
        self.depth.set(told.queue_depth);
        self.wait.set(told.estimated_wait_ms.map_or(f64::NAN, |ms| ms as f64 / 1_000.0));
    }
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("windlass");
        let requests = Family::default();
        let seconds = Family::<RouteLabels, Histogram>::new_with_constructor(|| {
            Histogram::new(exponential_buckets(0.0005, 2.0, 16))
        });
        let (tasks, ready, duties) = (Family::default(), Family::default(), Family::default());
        let notices = Family::default();
        let (idle_workers, open_waits) = (Gauge::default(), Gauge::default());
        registry.register("http_requests", "Requests answered", requests.clone());
        registry.register("http_request_seconds", "Time to answer", seconds.clone());
        registry.register("tasks", "Tasks by state, since the beginning", tasks.clone());
        registry.register("queue_ready", "Tasks that could be claimed now", ready.clone());
        registry.register("duty", "What duties did on this node", duties.clone());
        registry.register("notices", "What became of notices on this node", notices.clone());
        registry.register("idle_workers", "Waiting for work on this node", idle_workers.clone());
        registry.register("open_waits", "Waits for a task on this node", open_waits.clone());
        let pressure = Pressure::default();
        pressure.register(&mut registry);
        let inboxes = Inboxes::default();
        inboxes.register(&mut registry);
        Metrics {
            registry,
            requests,
            seconds,
            tasks,
            ready,
            duties,
            notices,
            idle_workers,
            open_waits,
            pressure,
            inboxes,
        }
    }

    /// A request was answered.
    pub fn request(&self, method: &str, route: &str, status: u16, elapsed: Duration) {
        let (method, route) = (method.to_owned(), route.to_owned());
        let labels = RouteLabels { route: route.clone() };
        self.seconds.get_or_create(&labels).observe(elapsed.as_secs_f64());
        let labels = RequestLabels { method, route, status: status.into() };
        self.requests.get_or_create(&labels).inc();
    }

    /// Everything as text.
    pub fn text(
        &self,
        engine: &Engine,
        counts: Option<&Counts>,
        depth: Option<&Depth>,
    ) -> Result<String, std::fmt::Error> {
        if let Some(depth) = depth {
            self.inboxes.set(depth);
        }
        self.idle_workers.set(engine.idle_workers() as i64);
        self.open_waits.set(engine.open_waits() as i64);
        self.pressure.set(engine);
        for stats in engine.duty_stats() {
            for (what, value) in [
                ("runs", stats.runs),
                ("changed", stats.changed),
                ("errors", stats.errors),
                ("panics", stats.panics),
            ] {
                let labels = DutyLabels { duty: stats.name.to_owned(), what: what.to_owned() };
                self.duties.get_or_create(&labels).set(value as i64);
            }
        }
        let told = engine.notice_stats();
        for (what, value) in
            [("delivered", told.delivered), ("put_off", told.put_off), ("given_up", told.given_up)]
        {
            let labels = NoticeLabels { what: what.to_owned() };
            self.notices.get_or_create(&labels).set(value as i64);
        }
        if let Some(counts) = counts {
            self.tasks.clear();
            for (state, count) in &counts.by_status {
                let labels = StateLabels { status: state.as_str().to_owned() };
                self.tasks.get_or_create(&labels).set(*count);
            }
            self.ready.clear();
            for (queue, profile, count) in &counts.ready {
                let kind = profile.kind().as_str().to_owned();
                let labels = QueueLabels { queue: queue.clone(), kind };
                self.ready.get_or_create(&labels).set(*count);
            }
        }
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
