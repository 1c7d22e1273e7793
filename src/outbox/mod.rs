//! The outbox: what has been paid for and is still owed to a destination.

pub mod backoff;
pub mod retry_after;
