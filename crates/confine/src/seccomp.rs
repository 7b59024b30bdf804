//! A filter of system calls: no io_uring, which goes around other filters, no calls under foreign
//! numbers, and where there is no network namespace, no sockets but those of the file system.

use libc::sock_filter;
use nix::errno::Errno;

use crate::report::NetworkReach;

/// The machine as `linux/audit.h` numbers it.
#[cfg(target_arch = "x86_64")]
const MACHINE: u32 = 0xC000_003E;
/// The machine as `linux/audit.h` numbers it.
#[cfg(target_arch = "aarch64")]
const MACHINE: u32 = 0xC000_00B7;

/// Numbers from here on are those of the x32 interface, which the kernel tells apart by this bit
/// alone; other machines have no calls there.
const X32_BIT: u32 = 0x4000_0000;

/// The three calls of io_uring have the same numbers on every machine.
const IO_URING: [u32; 3] = [425, 426, 427];

/// Offsets in `struct seccomp_data`, linux/seccomp.h.
const OFFSET_NUMBER: u32 = 0;
const OFFSET_MACHINE: u32 = 4;
/// The low half of the first argument, on machines whose lowest byte comes first.
const OFFSET_FIRST: u32 = 16;

/// `SECCOMP_RET_ALLOW` and `SECCOMP_RET_ERRNO`, linux/seccomp.h.
const ALLOW: u32 = 0x7FFF_0000;
const REFUSE: u32 = 0x0005_0000;

/// `SECCOMP_SET_MODE_FILTER`, linux/seccomp.h.
const SET_MODE_FILTER: libc::c_uint = 1;

/// Whether sockets of the network are refused as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// They are not: there is no need to, or a network namespace sees to it.
    All,
    /// Only those of the file system may be made.
    LocalAlone,
}

impl Sockets {
    /// What a program needs where `enforced` stands.
    pub(crate) fn of(enforced: NetworkReach) -> Sockets {
        match enforced {
            NetworkReach::Full | NetworkReach::Loopback => Sockets::All,
            NetworkReach::Nothing => Sockets::LocalAlone,
        }
    }
}

/// Installs the filter for this process and all that it will start.
///
/// # Errors
/// What the kernel says; `ENOSYS` where it has no filters, or this machine is not known.
pub(crate) fn install(sockets: Sockets) -> Result<(), Errno> {
    let mut filter = filter(sockets);
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| Errno::E2BIG)?,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: `program` describes the filter, and both outlive the call, which copies them.
    let value = unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) };
    Errno::result(value).map(drop)
}

/// The filter: a decision for the number of each call, at most one look at an argument.
fn filter(sockets: Sockets) -> Vec<sock_filter> {
    let refuse = |errno: Errno| give(REFUSE | errno as u32);
    let mut filter = vec![
        load(OFFSET_MACHINE),
        // Programs of another width would call io_uring under numbers of their own.
        skip_if_equal(MACHINE, 1),
        refuse(Errno::EPERM),
        load(OFFSET_NUMBER),
        skip_if_below(X32_BIT, 1),
        refuse(Errno::EPERM),
    ];
    for number in IO_URING {
        filter.extend([skip_unless_equal(number, 1), refuse(Errno::EPERM)]);
    }
    if sockets == Sockets::LocalAlone {
        filter.extend([
            skip_unless_equal(libc::SYS_socket as u32, 3),
            load(OFFSET_FIRST),
            skip_if_equal(libc::AF_UNIX as u32, 1),
            refuse(Errno::EACCES),
        ]);
    }
    filter.push(give(ALLOW));
    filter
}

fn instruction(code: u32, if_true: u8, if_false: u8, operand: u32) -> sock_filter {
    sock_filter {
        code: code as u16,
        jt: if_true,
        jf: if_false,
        k: operand,
    }
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset)
}

fn give(value: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, value)
}

fn skip_if_equal(operand: u32, count: u8) -> sock_filter {
    instruction(
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        count,
        0,
        operand,
    )
}

fn skip_unless_equal(operand: u32, count: u8) -> sock_filter {
    instruction(
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        0,
        count,
        operand,
    )
}

fn skip_if_below(operand: u32, count: u8) -> sock_filter {
    instruction(
        libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K,
        0,
        count,
        operand,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel would, for the instructions that are used here.
    fn run(filter: &[sock_filter], machine: u32, number: u32, first: u32) -> u32 {
        let (mut at, mut value) = (0, 0);
        loop {
            let it = &filter[at];
            at += 1;
            let code = u32::from(it.code);
            let jump = |taken: bool| usize::from(if taken { it.jt } else { it.jf });
            match code & 0x07 {
                libc::BPF_LD => {
                    value = match it.k {
                        OFFSET_NUMBER => number,
                        OFFSET_MACHINE => machine,
                        OFFSET_FIRST => first,
                        other => panic!("offset {other}"),
                    }
                }
                libc::BPF_JMP if code & 0xf0 == libc::BPF_JEQ => at += jump(value == it.k),
                libc::BPF_JMP if code & 0xf0 == libc::BPF_JGE => at += jump(value >= it.k),
                libc::BPF_RET => return it.k,
                other => panic!("code {other}"),
            }
        }
    }

    #[test]
    fn each_call_is_decided_as_meant() {
        let refused = |errno: Errno| REFUSE | errno as u32;
        let socket = libc::SYS_socket as u32;
        let (unix, inet) = (libc::AF_UNIX as u32, libc::AF_INET as u32);
        for sockets in [Sockets::All, Sockets::LocalAlone] {
            let filter = filter(sockets);
            let decide = |number, first| run(&filter, MACHINE, number, first);
            for number in [425, 426, 427, X32_BIT, X32_BIT | 41] {
                assert_eq!(decide(number, 0), refused(Errno::EPERM), "{number}");
            }
            for number in [0, 1, 424, 428, socket + 1, X32_BIT - 1] {
                assert_eq!(decide(number, inet), ALLOW, "{number}");
            }
            assert_eq!(decide(socket, unix), ALLOW);
            let network = match sockets {
                Sockets::All => ALLOW,
                Sockets::LocalAlone => refused(Errno::EACCES),
            };
            assert_eq!(decide(socket, inet), network);
            // 32-bit x86, as linux/audit.h numbers it.
            assert_eq!(run(&filter, 0x4000_0003, 1, 0), refused(Errno::EPERM));
        }
    }
}
