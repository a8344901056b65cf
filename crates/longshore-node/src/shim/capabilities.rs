//! Capabilities: the parts of root's power, as a set of bits, and how a process gives them up for good.

use std::io;

use nix::{errno::Errno, libc};

/// The names without `CAP_`, by the numbers of the kernel.
const NAMES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// What container runtimes leave to a program that names no capabilities (containerd's default of 14).
const OF_RUNTIMES: [&str; 14] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The bit of a capability; `None`: no capability has this name.
pub(crate) fn bit(name: &str) -> Option<u64> {
    let index = NAMES.iter().position(|known| *known == name)?;
    Some(1 << index)
}

/// The bits of a runtime's capabilities.
pub(crate) fn of_runtimes() -> u64 {
    let bits = OF_RUNTIMES.iter().filter_map(|name| bit(name));
    bits.fold(0, |all, bit| all | bit)
}

/// A set out of the status file of a process, as `CapEff` and `CapBnd`.
pub(crate) fn of_status(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    u64::from_str_radix(line.trim_start_matches(':').trim(), 16).ok()
}

/// Gives up for good, also for programs with privileges of their own, what is not in `kept`. While the process is still
/// root: it takes a capability.
pub(super) fn limit(kept: u64) -> Result<(), Errno> {
    for capability in 0..u64::BITS {
        if kept & (1 << capability) != 0 {
            continue;
        }
        // No such capability, or given up before.
        if prctl(libc::PR_CAPBSET_READ, capability)? != 1 {
            continue;
        }
        prctl(libc::PR_CAPBSET_DROP, capability)?;
    }
    Ok(())
}

/// Leaves this process no capability that is not in `kept`.
pub(super) fn lower(kept: u64) -> io::Result<()> {
    prctl(
        libc::PR_CAP_AMBIENT,
        libc::PR_CAP_AMBIENT_CLEAR_ALL.cast_unsigned(),
    )?;
    let header = Header {
        version: VERSION,
        pid: 0,
    };
    let mut halves = [Half::default(); 2];
    #[expect(unsafe_code, reason = "nix has no wrapper for capget")]
    // SAFETY: both pointers are to live structures of the kernel's layout; this version has two halves.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw const header, halves.as_mut_ptr()) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    for (half, kept) in halves.iter_mut().zip([kept, kept >> 32]) {
        let kept = u32::try_from(kept & u64::from(u32::MAX)).unwrap_or(0);
        half.effective &= kept;
        half.permitted &= kept;
        half.inheritable = 0;
    }
    #[expect(unsafe_code, reason = "nix has no wrapper for capset")]
    // SAFETY: as above, and the kernel only reads them.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const header, halves.as_ptr()) };
    if set == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The kernel's layout with 64 capabilities in two halves.
const VERSION: u32 = 0x2008_0522;

/// The kernel's `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// The kernel's `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The result; what the kernel does not know is 0.
fn prctl(option: i32, argument: u32) -> Result<i32, Errno> {
    let none: libc::c_ulong = 0;
    let argument = libc::c_ulong::from(argument);
    #[expect(unsafe_code, reason = "nix has no wrapper for these options")]
    // SAFETY: these options take numbers only.
    let result = unsafe { libc::prctl(option, argument, none, none, none) };
    match Errno::result(result) {
        Err(Errno::EINVAL) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_kernels_bits() {
        for (name, number) in [
            ("CHOWN", 0),
            ("NET_BIND_SERVICE", 10),
            ("SYS_ADMIN", 21),
            ("CHECKPOINT_RESTORE", 40),
        ] {
            assert_eq!(bit(name), Some(1 << number), "{name}");
        }
        assert_eq!(bit("CAP_CHOWN"), None);
        // As `capsh` shows the set of a container.
        assert_eq!(of_runtimes(), 0xa804_25fb);
    }

    #[test]
    fn sets_are_read_from_the_status_of_a_process() {
        let status = "Name:\tx\nCapEff:\t00000000a80425fb\nCapBnd:\t000001ffffffffff\n";
        assert_eq!(of_status(status, "CapEff"), Some(0xa804_25fb));
        assert_eq!(of_status(status, "CapBnd"), Some(0x1ff_ffff_ffff));
        assert_eq!(of_status(status, "CapAmb"), None);
    }
}
