//! The HTTP surface: plain request in, plain response out.

pub mod message;
mod problem;
pub mod validate;
