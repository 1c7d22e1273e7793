//! Whether a request is fresh, and what becomes of it: claim, run, settle, replay.

pub mod actor;
pub mod gateway;
pub mod mark;
pub mod output;
pub mod record;
pub mod recovery;
pub mod resolve;
pub mod runner;
pub mod state;
