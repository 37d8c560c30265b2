//! Facts about webhooks: what is sent, and where nothing is sent.

use super::*;
use crate::config::{Flag, Surroundings};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use uuid::Uuid;
use windlass::domain::time::Timestamp;

const SECRET: &str = "0123456789abcdef";

fn webhooks(url: &str, allow: &[&str]) -> Result<Webhooks, String> {
    let flags = [
        Flag { key: "webhook_url", value: url.to_owned() },
        Flag { key: "webhook_secret", value: SECRET.to_owned() },
        Flag { key: "webhook_allow", value: allow.join(",") },
    ];
    let folder = std::path::PathBuf::from("/nonexistent");
    let around = Surroundings { variables: Vec::new(), file: None, folder };
    let config = Config::load(&flags, &around).map_err(|error| error.to_string())?;
    Webhooks::new(&config).map(|webhooks| webhooks.expect("one is configured"))
}

fn parcel() -> Parcel {
    let at = Timestamp::from_ms(1_769_860_800_000);
    Parcel { id: Uuid::now_v7(), at, content: json!({ "notices": [{ "id": 1 }] }) }
}

async fn deliver(webhooks: &Webhooks) -> Result<(), String> {
    let receiver = webhooks.receivers().remove(0);
    webhooks.deliver(&receiver, &parcel()).await
}

/// Answers one request with `answer`; gives the request.
async fn once(listener: TcpListener, answer: &str) -> String {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&request).contains("]}") {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the request ended early");
        request.extend_from_slice(&buffer[..read]);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    String::from_utf8(request).unwrap()
}

async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[tokio::test]
async fn a_parcel_arrives_with_its_signature() {
    let (listener, port) = listen().await;
    let webhooks = webhooks(&format!("http://127.0.0.1:{port}/in?x=1"), &["127.0.0.1"]).unwrap();
    let answer = "HTTP/1.1 204 No Content\r\n\r\n";
    let (told, request) = tokio::join!(deliver(&webhooks), once(listener, answer));
    told.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /in?x=1 HTTP/1.1"), "{head}");
    let signature =
        head.lines().find_map(|line| line.strip_prefix("windlass-signature: ")).unwrap();
    // The same by `printf '1769860800.{"notices":[{"id":1}]}' | openssl dgst -sha256 -hmac …`.
    let known = "0fe78df51d10d871604e75779dfb9572ccd1ab7355413693359ce3366e8d9fd2";
    assert_eq!(signature, format!("t=1769860800,v1={known}"));
    assert_eq!(body, r#"{"notices":[{"id":1}]}"#);
}

#[tokio::test]
async fn a_parcel_holds_no_character_that_turns_or_hides_what_a_person_reads() {
    let (listener, port) = listen().await;
    let webhooks = webhooks(&format!("http://127.0.0.1:{port}/"), &["127.0.0.1"]).unwrap();
    let nasty = "pay \u{202e}pdf.exe\u{202c} to\u{200b} eve \\ \n ü";
    let content = json!({ "notices": [{ "message": nasty }] });
    let receiver = webhooks.receivers().remove(0);
    let sent = Parcel { content: content.clone(), ..parcel() };
    let answer = "HTTP/1.1 204 No Content\r\n\r\n";
    let (told, request) = tokio::join!(webhooks.deliver(&receiver, &sent), once(listener, answer));
    told.unwrap();
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(body.contains("\\u202epdf.exe\\u202c") && body.contains("to\\u200b"), "{body}");
    assert!(!body.chars().any(show::is_deceptive), "{body:?}");
    let read: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(read, content, "it is the same JSON");
}

#[tokio::test]
async fn a_refusal_of_the_receiver_is_a_failure_and_a_redirect_is_not_followed() {
    for (answer, words) in [
        ("HTTP/1.1 500 No\r\ncontent-length: 8\r\n\r\nbroken\n!", "500"),
        ("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\n\r\n", "redirects are not"),
    ] {
        let (listener, port) = listen().await;
        let webhooks = webhooks(&format!("http://127.0.0.1:{port}/"), &["127.0.0.1"]).unwrap();
        let (told, _) = tokio::join!(deliver(&webhooks), once(listener, answer));
        let told = told.unwrap_err();
        assert!(told.contains(words), "{told}");
    }
}

#[tokio::test]
async fn no_request_goes_to_an_address_that_is_not_public() {
    let (listener, port) = listen().await;
    for host in [
        "127.0.0.1",
        "127.1",
        "0x7f000001",
        "2130706433",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "224.0.0.1",
        "255.255.255.255",
    ] {
        // An address is refused when the server starts …
        let told = webhooks(&format!("http://{host}:{port}/"), &[]).err().expect(host);
        assert!(told.contains("blocked_address"), "{host}: {told}");
    }
    // … and a name when it has been resolved, right before the connection.
    for (name, allow) in [("localhost", "other"), ("LOCALHOST", "127.0.0.1")] {
        let webhooks = webhooks(&format!("http://{name}:{port}/"), &[allow]).unwrap();
        let told = deliver(&webhooks).await.unwrap_err();
        assert!(told.contains("blocked_address"), "{name}: {told}");
    }
    let refused = tokio::time::timeout(Duration::from_millis(1), listener.accept()).await;
    assert!(refused.is_err(), "somebody connected");
}

#[tokio::test]
async fn a_host_that_is_allowed_by_name_is_reached() {
    let (listener, port) = listen().await;
    let webhooks = webhooks(&format!("http://localhost:{port}/"), &["LocalHost"]).unwrap();
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let (told, _) = tokio::join!(deliver(&webhooks), once(listener, answer));
    told.unwrap();
}

#[test]
fn settings_that_make_no_webhook_are_refused_without_repeating_secrets() {
    for (url, words) in [
        ("ftp://example.com/token-5", "not http://"),
        ("file:///etc/passwd", "not http://"),
        ("https://user:token-5@example.com/", "a user or a password"),
        ("https://example.com/#token-5", "fragment"),
        ("nonsense token-5", "no URL"),
    ] {
        let told = webhooks(url, &[]).err().expect(url);
        assert!(told.contains(words) && !told.contains("token-5"), "{url}: {told}");
    }
    let named = webhooks("https://hooks.example.com/token-5", &[]).unwrap().receivers();
    assert!(named[0].starts_with("https://hooks.example.com#"), "{named:?}");
}
