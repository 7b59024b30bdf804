//! Namespaces: which are made, and the identity map of the user namespace.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{Gid, Uid};

use crate::limits;
use crate::report::{NetworkReach, Step};
use crate::steps::StepError;

/// The namespaces of every tree.
const TREE: i32 = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::CLONE_NEWIPC;

/// How the namespaces are had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// By the capability to make them.
    Own,
    /// By a user namespace around them, in which everybody has that capability.
    UserNamespace,
}

impl Privilege {
    /// The order to try: the user namespace has the longer list of things it can't do. "Root" does
    /// not decide, for root may lack the capability and anybody may have it.
    pub(crate) const ORDER: [Privilege; 2] = [Privilege::Own, Privilege::UserNamespace];

    /// The flags for clone3.
    pub(crate) fn flags(self, network: NetworkReach) -> i32 {
        match self {
            Privilege::Own => flags(network),
            Privilege::UserNamespace => flags(network) | libc::CLONE_NEWUSER,
        }
    }
}

/// The flags for clone3 of a process that has the capability to make namespaces.
pub(crate) fn flags(network: NetworkReach) -> i32 {
    match network {
        NetworkReach::Full => TREE,
        NetworkReach::Loopback | NetworkReach::Nothing => TREE | libc::CLONE_NEWNET,
    }
}

/// The ids of the caller, asked for before any namespace hides them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids {
    uid: Uid,
    gid: Gid,
}

impl Ids {
    pub(crate) fn current() -> Ids {
        Ids {
            uid: nix::unistd::geteuid(),
            gid: nix::unistd::getegid(),
        }
    }

    /// Maps these ids onto themselves, so that files keep their owners. Without privilege the
    /// kernel allows one id each, and the group only after setgroups(2) is given up.
    pub(crate) fn map_identity(self) -> Result<(), StepError> {
        let Ids { uid, gid } = self;
        write_map("/proc/self/setgroups", "deny")?;
        write_map("/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
        write_map("/proc/self/gid_map", &format!("{gid} {gid} 1"))
    }
}

fn write_map(path: &str, text: &str) -> Result<(), StepError> {
    write_whole(path, text)
        .map_err(|errno| StepError::errno(Step::UserMap, errno, "write").at(path.as_ref()))
}

/// Writes a kernel file in one call, as its parsers want.
fn write_whole(path: &str, text: &str) -> Result<(), Errno> {
    let opened = OpenOptions::new().write(true).open(path);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))
}

/// Bounds the number of tasks in this PID namespace (Linux 6.14); gives the gap when it can't.
///
/// A write acts on the writer's own namespace, whichever `/proc` it goes through; on an older kernel
/// it would act on the machine, so the version decides and nothing is tried.
pub(crate) fn cap_processes(cap: u32) -> Option<String> {
    if !kernel_has_pid_max_per_namespace() {
        return Some("no cap on the number of processes: needs Linux 6.14".to_owned());
    }
    let highest = limits::PID_FLOOR.saturating_add(cap);
    write_whole("/proc/sys/kernel/pid_max", &highest.to_string())
        .err()
        .map(|errno| format!("no cap on the number of processes: {}", errno.desc()))
}

/// Before Linux 6.14 root would set the limit of the whole machine.
fn kernel_has_pid_max_per_namespace() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .is_ok_and(|release| at_least(&release, (6, 14)))
}

fn at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= wanted,
        _ => false,
    }
}

nix::ioctl_read_bad!(get_interface_flags, libc::SIOCGIFFLAGS, libc::ifreq);
nix::ioctl_write_ptr_bad!(set_interface_flags, libc::SIOCSIFFLAGS, libc::ifreq);

/// Brings the loopback of a new network namespace up; gives the gap when it can't.
pub(crate) fn raise_loopback() -> Option<String> {
    set_loopback_up()
        .err()
        .map(|errno| format!("the private loopback is down: {}", errno.desc()))
}

fn set_loopback_up() -> Result<(), Errno> {
    let any = socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    // SAFETY: the request is writable, of the type that this call wants, and names an interface.
    unsafe { get_interface_flags(any.as_raw_fd(), &raw mut request) }?;
    // SAFETY: the call before filled the flags.
    unsafe { request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    // SAFETY: the request is readable and of the type that this call wants.
    unsafe { set_interface_flags(any.as_raw_fd(), &raw const request) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_versions_compare_as_numbers() {
        let cases = [
            ("6.14.0", true),
            ("6.9.12-generic", false),
            ("6.18.44-fc-v595", true),
            ("7.0-rc1", true),
            ("5.19.0", false),
            ("nonsense", false),
        ];
        for (release, expected) in cases {
            assert_eq!(at_least(release, (6, 14)), expected, "{release}");
        }
    }
}
