//! Suites of the system tests.
