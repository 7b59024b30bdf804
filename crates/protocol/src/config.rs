//! `muster.toml`: its layers, what each may change, and the settings that come of them.
