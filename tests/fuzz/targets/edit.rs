//! Edits: the text to find, the text to put in and the file, with a zero byte between them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut parts = data.splitn(3, |byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (old, new) = (text(), text());
    worker::fuzzing::edit(parts.next().unwrap_or_default(), &old, &new);
});
