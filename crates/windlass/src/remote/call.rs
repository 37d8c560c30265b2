//! The calls of handlers, as requests of the HTTP API.

use crate::client::{Call, Client, Error, Patience};
use crate::engine::Phase;
use crate::sdk::{
    Begun, CallError, Host, HostBeat, PastStep, Pending, Question, StepRun, TaskInfo, Told, Work,
};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use std::pin::Pin;
use std::time::Duration;
use windlass_domain::id::{ClaimId, LeaseId, SessionId, TaskId};
use windlass_domain::request::SubmitRequest;
use windlass_domain::step::Effect;
use windlass_domain::wait::Until;
use windlass_store::task::{
    BeginStep, Finish, Finishing, Park, Parked, RecordStep, Recorded, StepEnd,
};

/// A server that is asked over HTTP.
pub(super) struct Server {
    pub client: Client,
    /// How the session was registered: said again when the server has forgotten it.
    pub registration: Call,
}

impl From<Error> for CallError {
    fn from(error: Error) -> CallError {
        CallError {
            code: error.code().unwrap_or("unreachable").to_owned(),
            detail: error.to_string(),
            is_temporary: error.is_temporary(),
        }
    }
}

fn unexpected(what: impl std::fmt::Display) -> CallError {
    let detail = format!("the server's answer is not understood: {what}");
    CallError { code: "unexpected_answer".into(), detail, is_temporary: false }
}

fn read<T: DeserializeOwned>(json: &Json) -> Result<T, CallError> {
    T::deserialize(json).map_err(unexpected)
}

/// Canonical JSON that was checked before.
fn value(text: &str) -> Json {
    serde_json::from_str(text).unwrap_or_default()
}

fn maybe(text: &Option<String>) -> Option<Json> {
    text.as_deref().map(value)
}

/// The request's fields that are there.
fn body(fields: Json) -> Json {
    match fields {
        Json::Object(fields) => fields.into_iter().filter(|(_, v)| !v.is_null()).collect(),
        other => other,
    }
}

impl Server {
    async fn ask(&self, call: Call) -> Result<Json, CallError> {
        Ok(self.client.call(&call, Patience::SHORT).await?.body)
    }

    async fn post(&self, path: String, fields: Json) -> Result<Json, CallError> {
        self.ask(Call::post(path, fields)).await
    }

    /// A call of the session. One that expired while the server, or the line, was down goes on.
    async fn of_session(&self, call: Call) -> Result<Json, CallError> {
        let error = match self.ask(call.clone()).await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if !["session_closed", "session_not_found"].contains(&error.code.as_str()) {
            return Err(error);
        }
        self.ask(self.registration.clone()).await?;
        self.ask(call).await
    }
}

fn work(assignment: &Json) -> Result<Work, CallError> {
    let mut task: TaskInfo = read(&assignment["task"])?;
    task.attempt = read(&assignment["attempt"])?;
    let checkpoint = Some(&assignment["task"]["checkpoint"]).filter(|c| !c.is_null()).cloned();
    Ok(Work {
        task,
        lease: read(&assignment["lease_id"])?,
        payload: assignment["task"]["payload"].clone(),
        checkpoint,
        steps: read(&assignment["steps"])?,
        steps_complete: assignment["steps_complete"].as_bool().unwrap_or(true),
        assignment: None,
    })
}

fn leases(list: &Json, told: &[(TaskId, LeaseId)]) -> Vec<LeaseId> {
    let items = list.as_array().into_iter().flatten();
    let lease = |item: &Json| match item.get("lease_id") {
        Some(lease) => read(lease).ok(),
        // A server that names tasks only.
        None => {
            let task: TaskId = read(item).or_else(|_| read(&item["task_id"])).ok()?;
            told.iter().find(|(known, _)| *known == task).map(|(_, lease)| *lease)
        }
    };
    items.filter_map(lease).collect()
}

impl Host for Server {
    fn close(&self, session: SessionId) -> Pending<'_, ()> {
        let call = Call::delete(format!("/v1/sessions/{session}"));
        Box::pin(async move { self.ask(call).await.map(drop) })
    }

    fn claim(
        &self,
        session: SessionId,
        claim: ClaimId,
        max: usize,
        wait: Duration,
    ) -> Pending<'_, Vec<Work>> {
        Box::pin(async move {
            let fields = json!({ "max": max, "wait_ms": wait.as_millis() as u64, "start": true,
                "claim_id": claim });
            let call = Call::post(format!("/v1/sessions/{session}/claim"), fields).patient(wait);
            let answer = self.of_session(call).await?;
            let assignments = answer["assignments"].as_array();
            assignments.into_iter().flatten().map(work).collect()
        })
    }

    fn beat(&self, session: SessionId, beats: Vec<HostBeat>) -> Pending<'_, Told> {
        Box::pin(async move {
            let told: Vec<_> = beats.iter().map(|beat| (beat.task, beat.lease)).collect();
            let items = beats.iter().map(|beat| {
                body(json!({ "task_id": beat.task, "lease_id": beat.lease,
                    "checkpoint": maybe(&beat.checkpoint), "progress": maybe(&beat.progress) }))
            });
            let fields = json!({ "leases": items.collect::<Vec<_>>() });
            let call = Call::post(format!("/v1/sessions/{session}/heartbeat"), fields);
            let answer = self.of_session(call).await?;
            let unnamed = answer["unnamed"].as_array().into_iter().flatten();
            let held = |held: &Json| {
                Some((read(&held["task"]["id"]).ok()?, read(&held["lease_id"]).ok()?))
            };
            Ok(Told {
                cancelled: leases(&answer["cancelled"], &told),
                lost: leases(&answer["lost"], &told),
                unnamed: unnamed.filter_map(held).collect(),
            })
        })
    }

    fn tell(&self, _lease_ms: Option<i64>, beat: HostBeat, _actor: String) -> Pending<'_, Told> {
        Box::pin(async move {
            let fields = body(json!({ "lease_id": beat.lease,
                "checkpoint": maybe(&beat.checkpoint), "progress": maybe(&beat.progress) }));
            self.post(format!("/v1/tasks/{}/heartbeat", beat.task), fields).await?;
            Ok(Told::default())
        })
    }

    fn finish(&self, session: SessionId, item: Finish) -> Pending<'_, ()> {
        Box::pin(async move {
            let Finish { task, lease, how, usage, .. } = item;
            let fields = match how {
                Finishing::Complete(result) => {
                    json!({ "outcome": "complete", "result": maybe(&result) })
                }
                Finishing::Fail { error, retry_after_ms, .. } => {
                    json!({ "outcome": "fail", "error": error, "retry_after_ms": retry_after_ms })
                }
                Finishing::Release => json!({ "outcome": "release" }),
            };
            let mut fields = body(fields);
            if let Some(usage) = usage {
                fields["usage"] = json!(usage);
            }
            fields["task_id"] = json!(task);
            fields["lease_id"] = json!(lease);
            let path = format!("/v1/sessions/{session}/finish");
            let answer = self.post(path, json!({ "items": [fields] })).await?;
            let error = &answer["results"][0]["error"];
            if error.is_null() {
                return Ok(());
            }
            let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
            let is_temporary = error["status"].as_u64().is_some_and(|status| status >= 500);
            Err(CallError { code: text("code"), detail: text("detail"), is_temporary })
        })
    }

    fn record(&self, item: RecordStep) -> Pending<'_, Recorded> {
        Box::pin(async move {
            let RecordStep { holder, step, result, checkpoint } = item;
            let mut fields = body(json!({ "lease_id": holder.lease, "name": step.key.name,
                "type": step.kind, "inputs": value(&step.inputs),
                "occurrence": step.key.occurrence, "checkpoint": maybe(&checkpoint) }));
            let result = value(&result);
            fields["result"] = result.clone();
            let path = format!("/v1/tasks/{}/steps/record", holder.task);
            let kept = self.post(path, fields).await?;
            let earlier = Some(&kept["result"]).filter(|kept| **kept != result).cloned();
            Ok(Recorded { id: read(&kept["id"])?, earlier })
        })
    }

    fn begin(&self, item: BeginStep) -> Pending<'_, Begun> {
        Box::pin(async move {
            let BeginStep { holder, step } = item;
            let fields = body(json!({ "lease_id": holder.lease, "name": step.key.name,
                "type": step.kind, "inputs": value(&step.inputs),
                "occurrence": step.key.occurrence, "idempotent": false }));
            let path = format!("/v1/tasks/{}/steps", holder.task);
            let answer = match self.post(path, fields).await {
                Ok(answer) => answer,
                Err(error) if error.code == "step_failed" => {
                    return Ok(Begun::Rejected(error.detail));
                }
                Err(error) => return Err(error),
            };
            match answer["status"].as_str() {
                Some("new") => Ok(Begun::New(read(&answer["id"])?, answer["run"].as_i64())),
                Some("done") => Ok(Begun::Done(answer["result"].clone())),
                other => Err(unexpected(format!("the step is {other:?}"))),
            }
        })
    }

    fn end(&self, run: StepRun, _actor: String, end: StepEnd) -> Pending<'_, ()> {
        Box::pin(async move {
            let StepRun { step, lease, number } = run;
            let (what, fields) = match end {
                StepEnd::Complete { result, checkpoint } => {
                    let mut fields = body(json!({ "lease_id": lease, "run": number,
                        "checkpoint": maybe(&checkpoint) }));
                    fields["result"] = value(&result);
                    ("complete", fields)
                }
                StepEnd::Fail { error, effect } => {
                    let effect = (effect == Effect::None).then_some("none");
                    let fields = json!({ "lease_id": lease, "run": number, "error": error,
                        "effect": effect });
                    ("fail", body(fields))
                }
            };
            self.post(format!("/v1/steps/{step}/{what}"), fields).await.map(drop)
        })
    }

    fn park(&self, item: Park) -> Pending<'_, Parked> {
        Box::pin(async move {
            let until = match &item.until {
                Until::Time(time) => json!({ "time": time }),
                Until::DelayMs(ms) => json!({ "delay_ms": ms }),
                Until::Signal { name, key } => body(json!({ "signal": name, "key": key })),
                Until::Task(task) => json!({ "task": task }),
            };
            let fields = body(json!({ "lease_id": item.holder.lease, "until": until,
                "occurrence": item.occurrence, "timeout_ms": item.timeout_ms,
                "checkpoint": maybe(&item.checkpoint) }));
            let answer = self.post(format!("/v1/tasks/{}/park", item.holder.task), fields).await?;
            let wait = &answer["wait"];
            let step = read(&wait["step_id"])?;
            match wait["status"].as_str() {
                Some("parked") => Ok(Parked::Waiting(step)),
                Some("woken") => Ok(Parked::Woken(step, wait["result"].clone())),
                other => Err(unexpected(format!("the wait is {other:?}"))),
            }
        })
    }

    fn ask(&self, question: Question) -> Pending<'_, bool> {
        Box::pin(async move {
            let mut fields = body(json!({ "lease_id": question.lease, "gate": question.gate,
                "action": question.action, "expires_ms": question.expires_ms,
                "approvers": question.approvers, "occurrence": question.occurrence }));
            fields["arguments"] = question.arguments;
            let answer =
                self.post(format!("/v1/tasks/{}/approvals", question.task), fields).await?;
            Ok(answer["status"] == "approved")
        })
    }

    fn submit(&self, request: SubmitRequest) -> Pending<'_, TaskId> {
        Box::pin(async move {
            let mut fields = body(serde_json::to_value(&request).map_err(unexpected)?);
            fields["payload"] = request.payload;
            let answer = self.post("/v1/tasks".into(), fields).await?;
            read(&answer["id"])
        })
    }

    fn steps(&self, task: TaskId, after: i64) -> Pending<'_, (Vec<PastStep>, bool)> {
        Box::pin(async move {
            let call = Call::get(format!("/v1/tasks/{task}/steps"));
            // A step's place is the cursor after it.
            let call = call.query("limit", 1_000).query("cursor", after);
            let page = Server::ask(self, call).await?;
            Ok((read(&page["items"])?, page["next_cursor"].is_null()))
        })
    }

    fn draining(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    fn abandoned(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }

    fn phase(&self) -> Phase {
        Phase::Running
    }

    fn count(&self) -> Box<dyn Send + Sync> {
        Box::new(())
    }
}
