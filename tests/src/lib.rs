//! Harness and suites that run the real executables.
