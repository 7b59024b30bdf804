//! Giving up capabilities for good.

use nix::errno::Errno;

use crate::report::Step;
use crate::steps::StepError;
use crate::sys::best_effort;

/// Version 3 of the structures, capget(2).
const VERSION: u32 = 0x2008_0522;
/// Capabilities there can be at most: the structures hold two words of 32 bits.
const CAPABILITIES_MAX: u64 = 64;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops every capability and the way back to any: the bounding set where this process may, and
/// by `no_new_privs` in any case, which also disarms setuid programs.
pub(crate) fn drop_all() -> Result<(), StepError> {
    let failed = |errno, what: &str| StepError::errno(Step::Capabilities, errno, what);
    nix::sys::prctl::set_no_new_privs().map_err(|errno| failed(errno, "forbid new privileges"))?;
    for capability in 0..CAPABILITIES_MAX {
        // Without CAP_SETPCAP, as for an ordinary user, the bounding set stays; there is nothing
        // permitted then that it could bound.
        best_effort(drop_bound(capability));
    }
    set([Word::default(); 2]).map_err(|errno| failed(errno, "drop capabilities"))?;
    match get() {
        Ok(words) if words == [Word::default(); 2] => Ok(()),
        Ok(_) => Err(StepError::new(Step::Capabilities, "drop every capability")),
        Err(errno) => Err(failed(errno, "check the dropped capabilities")),
    }
}

fn drop_bound(capability: u64) -> Result<(), Errno> {
    // SAFETY: this option takes one number and touches no memory.
    Errno::result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }).map(drop)
}

fn set(words: [Word; 2]) -> Result<(), Errno> {
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    // SAFETY: both structures have the kernel's layout for this version and outlive the call.
    let value = unsafe { libc::syscall(libc::SYS_capset, &raw const header, words.as_ptr()) };
    Errno::result(value).map(drop)
}

fn get() -> Result<[Word; 2], Errno> {
    let mut header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut words = [Word::default(); 2];
    // SAFETY: both structures have the kernel's layout for this version, are writable and outlive
    // the call.
    let value = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) };
    Errno::result(value).map(|_| words)
}
