//! Webhooks of a running server: a receiver that is down, one that is up, and one that may not be.

use super::server::{Place, Server, eventually, text};
use receiver::Receiver;
use serde_json::{Value as Json, json};
use std::process::Command;

mod receiver {
    //! A receiver over plain sockets: it notes what it gets and answers as it is told.

    use std::sync::{Arc, Mutex};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[derive(Clone)]
    pub struct Receiver {
        pub port: u16,
        /// Head and body of each request.
        pub got: Arc<Mutex<Vec<(String, String)>>>,
        /// How many requests are refused before one is taken.
        pub refusals: Arc<Mutex<usize>>,
    }

    impl Receiver {
        pub async fn start(refusals: usize) -> Receiver {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let refusals = Arc::new(Mutex::new(refusals));
            let receiver = Receiver { port, got: Arc::default(), refusals };
            let serving = receiver.clone();
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    serving.answer(stream).await;
                }
            });
            receiver
        }

        async fn answer(&self, mut stream: tokio::net::TcpStream) {
            let mut bytes = Vec::new();
            let mut buffer = [0; 8192];
            let (head, body) = loop {
                let read = stream.read(&mut buffer).await.unwrap();
                bytes.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                    break (head.to_owned(), body.to_owned());
                }
            };
            self.got.lock().unwrap().push((head, body));
            let refused = {
                let mut refusals = self.refusals.lock().unwrap();
                let refused = *refusals > 0;
                *refusals = refusals.saturating_sub(1);
                refused
            };
            let answer = if refused {
                "HTTP/1.1 503 No\r\ncontent-length: 9\r\n\r\nnot today"
            } else {
                "HTTP/1.1 204 No Content\r\n\r\n"
            };
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    }
}

const SECRET: &str = "a-secret-of-webhooks";

mod sqlite {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_alert_reaches_a_webhook_that_was_down() {
        super::an_alert_reaches_a_webhook_that_was_down(super::Place::sqlite()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_name_that_leads_inside_is_not_called() {
        super::a_name_that_leads_inside_is_not_called(super::Place::sqlite()).await;
    }
}

mod postgres {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_alert_reaches_a_webhook_that_was_down() {
        super::an_alert_reaches_a_webhook_that_was_down(super::Place::postgres()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_name_that_leads_inside_is_not_called() {
        super::a_name_that_leads_inside_is_not_called(super::Place::postgres()).await;
    }
}

async fn poisoned(server: &Server) -> String {
    let id = server.submit("q").await;
    let session = server.worker("q", 1).await;
    let (_, lease) = server.claim(&session).await;
    let body = json!({ "lease_id": lease, "error": { "code": "POISON_TASK", "message": "no" } });
    server.post(&format!("/v1/tasks/{id}/fail"), body).await.expect(200);
    id
}

async fn notice(server: &Server) -> Json {
    server.get("/v1/notices").await.expect(200)["items"][0].clone()
}

async fn an_alert_reaches_a_webhook_that_was_down(place: Place) {
    let receiver = Receiver::start(1).await;
    let url = format!("http://127.0.0.1:{}/in?token=hidden", receiver.port);
    let settings = [
        ("WINDLASS_WEBHOOK_URL", url.as_str()),
        ("WINDLASS_WEBHOOK_SECRET", SECRET),
        ("WINDLASS_WEBHOOK_ALLOW", "127.0.0.1"),
    ];
    let server = Server::start(place, &settings).await;
    let id = poisoned(&server).await;
    eventually("the first try failed", async || notice(&server).await["last_error"].is_string())
        .await;
    let told = notice(&server).await;
    let error = text(&told["last_error"]);
    assert!(error.contains("503") && error.contains("not today"), "{error}");
    assert!(!error.contains("hidden"), "{error}");
    assert_eq!((&told["state"], &told["tries"]), (&json!("waiting"), &json!(1)));
    // Ten seconds later it is tried again.
    eventually("it was taken", async || notice(&server).await["state"] == "delivered").await;
    let got = receiver.got.lock().unwrap().clone();
    assert_eq!(got.len(), 2);
    assert_eq!(got[0].1, got[1].1, "the same notice under the same id");
    let body: Json = serde_json::from_str(&got[1].1).unwrap();
    assert_eq!(body["notices"][0]["id"], told["id"]);
    assert_eq!(body["notices"][0]["body"]["task"], json!(id));
    assert_eq!(body["notices"][0]["body"]["type"], "poison_task");
    assert!(is_signed(&got[1].0, &got[1].1), "{}", got[1].0);
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("windlass_notices{what=\"delivered\"} 1"), "{metrics}");
    assert!(metrics.contains("windlass_notices{what=\"put_off\"} 1"), "{metrics}");
}

/// Checks the signature as docs/operations.md says: with the Python that stands there.
fn is_signed(head: &str, body: &str) -> bool {
    let document = include_str!("../../../../../docs/operations.md");
    let (_, rest) = document.split_once("```python\n").unwrap();
    let (function, _) = rest.split_once("```").unwrap();
    let header = head.lines().find_map(|line| line.strip_prefix("windlass-signature: ")).unwrap();
    let call = "import sys\nok = is_ours(sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode())";
    let no = "bad = is_ours(sys.argv[1], sys.argv[2].encode() + b' ', sys.argv[3].encode())";
    let script = format!("{function}\n{call}\n{no}\nsys.exit(0 if ok and not bad else 1)");
    let status = Command::new("python3").args(["-c", &script, header, body, SECRET]).status();
    status.expect("python3 is installed").success()
}

async fn a_name_that_leads_inside_is_not_called(place: Place) {
    let receiver = Receiver::start(0).await;
    let url = format!("http://localhost:{}/in", receiver.port);
    let settings = [("WINDLASS_WEBHOOK_URL", url.as_str()), ("WINDLASS_WEBHOOK_SECRET", SECRET)];
    let server = Server::start(place, &settings).await;
    poisoned(&server).await;
    eventually("it was refused", async || notice(&server).await["last_error"].is_string()).await;
    let error = text(&notice(&server).await["last_error"]);
    assert!(error.contains("blocked_address"), "{error}");
    assert_eq!(receiver.got.lock().unwrap().len(), 0);
}
