//! The jail step: a small library without a runtime, and the executable `jail` that starts a worker under OS limits.
