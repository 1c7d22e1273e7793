//! The simulated world that the service is tested in: every port, with its weaknesses, on virtual
//! time.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses a part of it"
)]

pub mod check;
pub mod client;
pub mod exec;
pub mod fate;
pub mod gemini;
pub mod hooks;
pub mod mutant;
pub mod outbound;
pub mod people;
pub mod platform;
pub mod ports;
pub mod sqlite;
pub mod stores;
pub mod world;

pub use check::{Rest, assert_sound, at_rest, every_step};
pub use client::{Answer, Call};
pub use fate::{Dice, Fate, Kind};
pub use gemini::Act;
pub use hooks::HookAct;
pub use stores::Sight;
pub use world::{Owned, Setup, World};
