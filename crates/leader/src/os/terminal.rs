//! How wide the terminal is.

use std::os::fd::{AsFd, AsRawFd};

use nix::libc;

/// What is taken for a terminal that does not say how wide it is.
pub const COLUMNS_DEFAULT: usize = 80;

/// Columns of the terminal behind a descriptor; none when it is no terminal or does not say.
pub fn columns(terminal: impl AsFd) -> Option<usize> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptor is borrowed and so stays open for the call, and the kernel writes
    // one `winsize` (ioctl_tty(2)), for which `size` is a valid place.
    let answer = unsafe {
        libc::ioctl(
            terminal.as_fd().as_raw_fd(),
            libc::TIOCGWINSZ,
            &raw mut size,
        )
    };
    (answer == 0 && size.ws_col > 0).then(|| usize::from(size.ws_col))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_terminal_has_no_width() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(columns(&file), None);
    }
}
