//! Typed requests: every body of the API becomes a type here, or a list of all its faults.
//!
//! A fault names a place by JSON pointer and says what belongs there, never what was there.

pub mod bounds;
mod generation;
mod operations;
mod reader;

pub use generation::{GenerationRequest, KeyDefaults};
pub use operations::{
    AccountChange, AccountRequest, DailyCredits, KeyRequest, ResolveAction, ResolveRequest,
};
