//! Identity: which requests are the same purchase.
//!
//! A request is parsed exactly ([`json`], [`decimal`]), brought into one form whatever its
//! spelling ([`canonical`], with Google's own spellings in `fields`), and hashed ([`identity`]).
//! A caller may name the purchase itself ([`idempotency_key`]); else the content does, for as long
//! as its [`window`] lasts.

pub mod canonical;
pub mod decimal;
mod fields;
pub mod idempotency_key;
pub mod identity;
pub mod json;
#[cfg(test)]
mod known_answers;
pub mod leaves;
pub mod limits;
mod parse;
pub mod pointer;
#[cfg(test)]
mod respell;
pub mod scope;
pub mod window;
