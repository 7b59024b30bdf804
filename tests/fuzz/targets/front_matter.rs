//! The front matter of skills.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| worker::fuzzing::front_matter(text));
