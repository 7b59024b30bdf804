//! Every bound of this crate, named, with its unit last.

/// Exit code of `jail` when the program never started.
pub const EXIT_NOT_STARTED: u8 = 125;
/// Exit code of `jail` when the program exists and can't be executed.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;
/// Exit code of `jail` when the program was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// Largest policy text in bytes: one argument of a program may hold 128 KiB, and the rest is slack.
pub const POLICY_BYTES_MAX: usize = 96 * 1024;
/// Tasks (processes and threads) one tree may have at once, unless the policy says otherwise.
pub const PROCESS_CAP_DEFAULT: u32 = 1024;
/// Largest process cap a policy may ask for: the kernel's own limit less [`PID_FLOOR`].
pub const PROCESS_CAP_MAX: u32 = 4_000_000;
/// Numbers below this are never handed out again once process numbers have wrapped, so the
/// namespace's `pid_max` lies this much above the cap.
pub const PID_FLOOR: u32 = 300;
/// Open descriptors one process of the tree may have, unless the policy says otherwise.
pub const OPEN_FILES_DEFAULT: u64 = 4096;
/// Largest single file in bytes a process of the tree may write, unless the policy says otherwise.
pub const FILE_SIZE_BYTES_DEFAULT: u64 = 8 << 30;
/// Bytes the private `/tmp` and `/dev/shm` hold each, unless the policy says otherwise.
pub const TMP_BYTES_DEFAULT: u64 = 2 << 30;
/// Bytes that the directory in place of `/run` holds: nothing but what is put back is in it.
pub const RUN_BYTES: u64 = 64 * 1024;
/// Paths of one kind that a policy may name about files.
pub const FILE_PATHS_MAX: usize = 256;
/// Milliseconds between two looks for a protected name that somebody outside has taken away.
pub const FALLEN_LOOK_MS: u16 = 50;
/// Protections that one init reports as bound again; what falls off later is bound without a word.
pub const REBOUND_MAX: u32 = 32;
/// Paths a policy may name beside the workspace to stay visible.
pub const VISIBLE_PATHS_MAX: usize = 64;
/// Seconds between the soft and the hard CPU limit, in which a program may still save its work.
pub const CPU_HARD_EXTRA_SECONDS: u64 = 5;
/// The tree is the first to go when memory runs out: what its out-of-memory score is raised to.
pub const OOM_SCORE: i32 = 500;
/// Lowest number for the liveness descriptor of tests: 0 to 2 are the program's, 3 the keeper's.
pub const KEEP_FD_MIN: i32 = 4;

/// Largest message in bytes between the processes of one jail.
pub const INSIDE_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Gaps one report lists at most; the last one then says how many more there are.
pub const GAPS_MAX: usize = 32;
/// Longest time in milliseconds that the last line may wait for room in a full channel.
pub const LINE_BUDGET_MS: u16 = 2_000;
/// Bytes a pipe takes without blocking once it polls writable (`PIPE_BUF`, pipe(7)).
pub const PIPE_CHUNK_BYTES: usize = 4096;

/// Time in milliseconds within which a probe's canary must have started and ended.
pub const PROBE_BUDGET_MS: u64 = 5_000;
/// Time in milliseconds within which a killed tree must be empty to count as completely killed.
pub const PROBE_EMPTY_BUDGET_MS: u16 = 1_000;
/// Seconds after which an escaped canary ends by itself.
pub const CANARY_LIFETIME_SECONDS: u32 = 10;
/// Largest output in bytes read from a probe.
pub const PROBE_OUTPUT_BYTES_MAX: u64 = 256 * 1024;

/// Time in milliseconds that a killed cgroup gets to become empty before the jail ends without it.
pub const CGROUP_EMPTY_BUDGET_MS: u64 = 2_000;
/// Milliseconds between two looks at a cgroup that makes no sound.
pub const CGROUP_LOOK_MS: u64 = 20;
/// Entries of the delegated directory that are looked at for groups left behind.
pub const CGROUP_SWEEP_MAX: usize = 4096;
/// Time in milliseconds that groups of dead jails get to become empty in the last sweep.
pub const CGROUP_SWEEP_BUDGET_MS: u64 = 200;
/// Levels of groups below a tree's own that are removed with it.
pub const CGROUP_DEPTH_MAX: u32 = 8;

/// Processes that one walk down a tree holds at once; each costs a descriptor.
pub const WALK_PROCESSES_MAX: usize = 512;
/// First pause in milliseconds between two walks.
pub const WALK_PAUSE_MIN_MS: u16 = 1;
/// Longest pause in milliseconds between two walks.
pub const WALK_PAUSE_MAX_MS: u16 = 1_000;
/// How often the members of a group that is to end by itself are looked for, in milliseconds.
pub const GROUP_LOOK_MS: u64 = 20;

/// Commands that one keeper runs at once.
pub const COMMANDS_MAX: usize = 64;
/// Largest message in bytes to the keeper: arguments and environment of one command.
pub const COMMAND_BYTES_MAX: usize = 160 * 1024;
/// Longest time-out in milliseconds a command may ask for; without one it ends with its worker.
pub const COMMAND_TIMEOUT_MS_MAX: u64 = 24 * 3600 * 1000;
/// Time in milliseconds between SIGTERM and the kill of a command whose time-out has passed.
pub const COMMAND_GRACE_MS: u64 = 1_000;
/// The longest wait of a keeper while a time-out runs, in milliseconds: what goes far beyond it is
/// time in which the whole tree was stopped, and does not count.
pub const AWAKE_PIECE_MS: u64 = 250;
/// Longest time in milliseconds that what a command left running may get to end by itself.
pub const LINGER_MS_MAX: u64 = 10_000;
