//! The diagnostic log on stderr, without secrets.

use std::io::{self, Write};
use std::sync::{PoisonError, RwLock};

use protocol::secret::Mask;

/// What the log hides. A process has one log, set up before any secret is known, and libraries
/// write to it from wherever they are: there is nobody whom a message could be sent to.
static HIDDEN: RwLock<Option<Mask>> = RwLock::new(None);

/// Keeps these secrets out of the log from here on.
pub fn hide(mask: Mask) {
    *HIDDEN.write().unwrap_or_else(PoisonError::into_inner) = Some(mask);
}

/// Where the log goes: stderr, one event a write.
#[derive(Debug)]
pub struct LogWriter;

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mask = HIDDEN.read().unwrap_or_else(PoisonError::into_inner);
        match mask.as_ref().filter(|mask| mask.is_in(bytes)) {
            None => io::stderr().write_all(bytes)?,
            Some(mask) => {
                let mut plain = Vec::new();
                let mut stream = mask.stream();
                stream.push(bytes, &mut plain);
                stream.finish(&mut plain);
                io::stderr().write_all(&plain)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
