//! Streams of events, cut anywhere. The first byte says how many cuts follow it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((count, rest)) = data.split_first() else {
        return;
    };
    let (cuts, stream) = rest.split_at(usize::from(count % 16).min(rest.len()));
    worker::fuzzing::server_sent_events(cuts, stream);
});
