//! Processes that try to outlive whoever started them, each in a way of its own.

use std::time::Duration;

use crate::fifo::Liveness;
use crate::workspace::Workspace;

/// A chain of processes, each of which forks the next one and ends.
const HOPPER: &str = "
import os, sys, time
if len(sys.argv) > 1: os.setsid()
os.write(9, b'up\\n')
end = time.monotonic() + LIFE
while time.monotonic() < end:
    if os.fork(): os._exit(0)
    time.sleep(0.0005)
";

/// The parent of a vfork whose child never executes anything, and that child.
const VFORK: &str = "
import ctypes, os, time
call = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]
if ctypes.CDLL(None).syscall(call, 0x4000 | 17, 0, 0, 0, 0) == 0:
    os.write(9, b'up\\n')
    time.sleep(LIFE)
";

/// A child that its parent traces and never lets go on.
const TRACED: &str = "
import ctypes, os, signal, time
if os.fork() == 0:
    ctypes.CDLL(None).ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.wait3(os.WUNTRACED)
os.write(9, b'up\\n')
time.sleep(LIFE)
";

/// Seconds after which each of them ends by itself, should a test have failed to end it.
const LIFE_SECONDS: u32 = 60;

/// A shell text that starts escapees, all of which hold one liveness pipe, and that pipe.
#[derive(Debug)]
pub struct Escapees {
    /// The pipe that each of them holds.
    pub alive: Liveness,
    count: usize,
    script: String,
}

impl Escapees {
    /// Every way to escape that is known. Each lies in a file of the workspace, so that no text
    /// has to be quoted twice.
    pub fn all(workspace: &Workspace) -> Self {
        let mut ways = Escapees::within_the_group(workspace);
        let session = [
            "setsid sh held.sh &",
            // A daemon without its environment, its name and its standard descriptors.
            "(cd /; setsid env -i bash -c 'exec -a {} sh \"$0\"' \"$OLDPWD/held.sh\" \
             </dev/null >/dev/null 2>&1 &) &",
            "setsid sh deaf.sh &",
            "setsid sh stopped.sh &",
            // In namespaces of its own, where it may have them.
            "(unshare -U -p -f sh held.sh || sh held.sh) 2>/dev/null &",
            "python3 hopper.py session &",
        ];
        ways.count += session.len();
        ways.script.push_str(&session.join("\n"));
        ways.script.push('\n');
        ways
    }

    /// Those that stay in the group that they were started in.
    pub fn within_the_group(workspace: &Workspace) -> Self {
        let alive = workspace.liveness("alive");
        let life = LIFE_SECONDS.to_string();
        let write = |name: &str, text: &str| {
            workspace.write(name, text.replace("LIFE", &life));
        };
        write("held.sh", "echo up >&9; exec sleep LIFE\n");
        let deaf = "trap '' TERM HUP INT; echo up >&9; for n in $(seq LIFE); do sleep 1; done\n";
        write("deaf.sh", deaf);
        write("stopped.sh", "echo up >&9; kill -STOP $$\n");
        write("hopper.py", HOPPER);
        write("vfork.py", VFORK);
        write("traced.py", TRACED);
        let group = [
            "sh held.sh &",
            "sh deaf.sh &",
            "sh stopped.sh &",
            "python3 hopper.py &",
            "python3 vfork.py &",
            "python3 traced.py &",
        ];
        let pipe = workspace.join("alive");
        let script = format!("exec 9>'{}'\n{}\n", pipe.display(), group.join("\n"));
        Escapees {
            alive,
            count: group.len(),
            script,
        }
    }

    /// One more, started by a line of shell text; it runs `held.sh` in the end.
    pub fn and(&mut self, line: &str) {
        self.count += 1;
        self.script.push_str(line);
        self.script.push('\n');
    }

    /// A shell command that starts them and stays.
    pub fn command(&self) -> String {
        format!("{}exec sleep {LIFE_SECONDS}", self.script)
    }

    /// A shell command that starts them and ends once all of them are up.
    pub fn command_that_ends(&self) -> String {
        format!("{}until [ -e go ]; do sleep 0.02; done", self.script)
    }

    /// Waits until all of them are up.
    ///
    /// # Panics
    /// When they are not within the budget.
    pub fn wait_up(&mut self, budget: Duration) {
        assert!(self.alive.wait_up(self.count, budget), "not all are up");
    }
}
