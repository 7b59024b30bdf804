//! Lines of JSON-RPC: what is read is written and read again as the same.
#![no_main]

use protocol::wire::Frame;

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    if let Ok(frame) = Frame::parse(line) {
        let written = frame.to_line();
        assert_eq!(written.matches('\n').count(), 1);
        assert_eq!(Frame::parse(written.as_bytes()), Ok(frame));
    }
});
