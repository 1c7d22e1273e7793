//! Whether a request is fresh, and what becomes of it: claim, run, settle, replay.

pub mod gateway;
pub mod mark;
pub mod record;
pub mod state;
