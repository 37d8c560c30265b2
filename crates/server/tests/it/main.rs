//! The binary as people use it: real processes, real databases, a real server.

mod migrate;
