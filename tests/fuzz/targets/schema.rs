//! Schemas of other people's tools.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &[u8]| worker::fuzzing::schema(text));
