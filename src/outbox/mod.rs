//! The outbox: what has been paid for is owed to its destinations until they have it.

pub mod attempt;
pub mod backoff;
pub mod budget;
pub mod circuit;
pub mod decide;
mod deliver;
pub mod drain;
pub mod retry_after;
mod round;
