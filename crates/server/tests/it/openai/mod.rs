//! OpenAI's API in front of pools: the real server, the real provider, a small real upstream.

mod bound;
mod chat;
mod provider;
mod python;
mod reading;
mod refusal;
mod response;
mod setting;
mod upstream;
