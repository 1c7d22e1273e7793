//! Bounded exhaustive interleavings.
