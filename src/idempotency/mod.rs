//! Whether a request is fresh, and what becomes of it: claim, run, settle, replay.

pub mod actor;
pub mod body;
pub mod follow;
pub mod gateway;
pub mod live;
pub mod mark;
pub mod output;
pub mod queue;
pub mod reading;
pub mod record;
pub mod recovery;
pub mod resolve;
pub mod room;
pub mod runner;
pub mod state;
pub mod wire;
