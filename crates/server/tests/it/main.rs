//! The binary as people use it: real processes, real databases, a real server.

mod company;
mod demo;
mod fake;
mod http;
mod migrate;
mod openai;
mod readme;
mod service;
mod task;
mod worker;
