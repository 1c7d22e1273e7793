//! Identity: which requests are the same purchase.
//!
//! A request is parsed exactly ([`json`], [`decimal`]), so that it can be compared as values.

pub mod decimal;
pub mod json;
pub mod limits;
mod parse;
pub mod pointer;
