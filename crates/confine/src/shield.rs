//! Hides a process that knows a secret from all others of its user.

use std::io;

use nix::sys::resource::{Resource, setrlimit};

/// Lets no process without capabilities look into this one: not at its memory, environment or
/// descriptors (ptrace(2), "Ptrace access mode checking"; proc(5); pidfd_getfd(2)), and lets it
/// leave no core dump.
///
/// It is for the program itself to call, first thing: execve(2) makes a process dumpable again.
/// What it starts then is not hidden, for that is executed too. Its own `/proc/self` files belong to
/// root from here on, but it may use its descriptors below `/proc/self/fd` as before.
///
/// # Errors
/// When the kernel refuses, which it never does for these values.
pub fn hide_this_process() -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::resource::getrlimit;
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    #[test]
    fn a_hidden_process_is_not_dumpable_and_still_reaches_its_own_descriptors() {
        // In a process of its own, for the other tests want to be debugged.
        // SAFETY: the child makes system calls alone and leaves by `_exit`.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let hidden = hide_this_process().is_ok()
                    && nix::sys::prctl::get_dumpable() == Ok(false)
                    && getrlimit(Resource::RLIMIT_CORE) == Ok((0, 0))
                    && nix::unistd::access("/proc/self/fd/0", nix::unistd::AccessFlags::F_OK)
                        .is_ok();
                // SAFETY: it ends this process at once.
                unsafe { libc::_exit(i32::from(!hidden)) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
    }
}
