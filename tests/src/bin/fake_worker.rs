//! A worker that misbehaves on demand. It is started like the real one; the first line of its
//! task, `fake: NAME`, says what it does.

#![expect(
    clippy::disallowed_methods,
    reason = "tests measure, wait and start processes themselves"
)]

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use protocol::channel;
use protocol::conversation::{CONVERSATION_FORMAT, ConversationFile, Message, Outcome};
use protocol::job::{CONVERSATION_FILE, JobSpec, TASK_FILE};
use protocol::stats::Stats;
use protocol::status::Status;
use protocol::wire::Frame;
use serde_json::{Value, json};

/// A sleep that outlasts every test; whoever started us ends it.
const FOR_EVER: Duration = Duration::from_secs(600);
/// How long a quick task takes.
const BRIEF: Duration = Duration::from_millis(30);
/// What a chatty worker prints on each of its two outputs.
const CHATTER_BYTES: usize = 20 * 1024 * 1024;

struct Fake {
    agent_dir: PathBuf,
    deliverables: PathBuf,
    job: JobSpec,
    /// What follows the first line of the task.
    rest: String,
}

fn main() -> ExitCode {
    match start().and_then(|(fake, name)| fake.act(&name)) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            writeln!(io::stderr(), "fake worker: {error}").ok();
            ExitCode::from(99)
        }
    }
}

fn start() -> io::Result<(Fake, String)> {
    let mut args = std::env::args();
    let file = args
        .by_ref()
        .skip_while(|word| word != "--job")
        .nth(1)
        .ok_or_else(|| io::Error::other("no --job"))?;
    let agent_dir = Path::new(&file)
        .parent()
        .unwrap_or(Path::new("."))
        .to_path_buf();
    let job: JobSpec = serde_json::from_slice(&std::fs::read(&file)?)?;
    let task = std::fs::read_to_string(agent_dir.join(TASK_FILE))?;
    let (first, rest) = task.split_once('\n').unwrap_or((&task, ""));
    let name = first.strip_prefix("fake: ").unwrap_or("");
    let deliverables = job.workspace.join(&job.deliverables_dir);
    Ok((
        Fake {
            agent_dir,
            deliverables,
            job,
            rest: rest.to_owned(),
        },
        name.trim().to_owned(),
    ))
}

impl Fake {
    /// Does what `name` stands for and gives the exit code.
    fn act(&self, name: &str) -> io::Result<u8> {
        match name {
            "exit 7" => Ok(7),
            "exit 0" => Ok(0),
            // Finished, with everything in place, but some handle keeps the process alive.
            "file then linger" => {
                self.deliver("report.md", "all of it")?;
                self.write_result(true, "the report is written")?;
                hang()
            }
            "channel then linger" => {
                self.initialize()?;
                self.deliver("report.md", "all of it")?;
                self.say(channel::FINISHED, finished(true, "the report is written"))?;
                hang()
            }
            "channel only" => {
                self.initialize()?;
                self.say(channel::FINISHED, finished(true, "told, not written"))?;
                Ok(0)
            }
            "never initialize" => hang(),
            "hang" => {
                self.initialize()?;
                self.deliver("partial.txt", "half of it")?;
                self.say(channel::PROGRESS, progress("waits for ever"))?;
                hang()
            }
            "flood" => self.flood(),
            "junk" => self.junk(),
            "chatty" => self.chatty(),
            "half a result" => self.torn("{\"agent_id\":1,"),
            "empty result" => self.torn(""),
            "null result" => self.torn("null"),
            "list result" => self.torn("[]"),
            "wrong types" => self.torn("{\"format\":\"x\",\"agent_id\":[],\"messages\":7}"),
            "deep result" => self.torn(&"[".repeat(1024 * 1024)),
            "no newline" => print_without_end(500),
            "huge frame" => {
                print_without_end(20)?;
                io::stdout().lock().write_all(b"\n")?;
                hang()
            }
            "grandchild" => {
                // It holds the worker's outputs, and the test's pipe so that its end is seen.
                let held = self.job.workspace.join("alive");
                let pipe = std::fs::OpenOptions::new().write(true).open(held)?;
                (&pipe).write_all(b"up\n")?;
                Command::new("sh")
                    .args(["-c", "exec 9>alive; exec sleep 300"])
                    .current_dir(&self.job.workspace)
                    .stdin(Stdio::null())
                    .spawn()?;
                Ok(0)
            }
            // Lives for a moment, as a quick task does.
            "brief" => {
                self.initialize()?;
                std::thread::sleep(BRIEF);
                self.say(channel::FINISHED, finished(true, "was quick and is done"))?;
                Ok(0)
            }
            // Reports after as many milliseconds as the rest of its task says.
            "report after" => {
                self.initialize()?;
                let pause_ms = self.rest.trim().parse().map_err(io::Error::other)?;
                std::thread::sleep(Duration::from_millis(pause_ms));
                self.say(channel::FINISHED, finished(true, "was done at that moment"))?;
                Ok(0)
            }
            // Runs the rest of its task in a shell, and goes without looking back.
            "shell" => {
                self.initialize()?;
                let status = Command::new("sh")
                    .args(["-c", &self.rest])
                    .current_dir(&self.job.workspace)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .status()?;
                Ok(if status.success() { 0 } else { 97 })
            }
            "links" => self.links(),
            "fifo result" => self.replace_result(mkfifo),
            "huge result" => self.replace_result(|path| {
                // Two gigabytes that take no room on the disk.
                std::fs::File::create(path)?.set_len(2 << 30)
            }),
            "device result" => {
                self.replace_result(|path| std::os::unix::fs::symlink("/dev/zero", path))
            }
            "linked result" => {
                self.replace_result(|path| std::os::unix::fs::symlink(CONVERSATION_FILE, path))
            }
            "linked folder" => {
                std::fs::rename(&self.agent_dir, self.deliverables.join("moved"))?;
                let outside = self.job.workspace.join("../outside");
                std::os::unix::fs::symlink(outside, &self.agent_dir)?;
                Ok(0)
            }
            other => Err(io::Error::other(format!("unknown fake `{other}`"))),
        }
    }

    /// Shakes hands as the real worker does.
    fn initialize(&self) -> io::Result<()> {
        let params = json!({"protocol": channel::PROTOCOL, "worker_version": "fake"});
        print(&Frame::request(0, channel::INITIALIZE, params).to_line())?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        match Frame::parse(answer.trim_end().as_bytes()) {
            Ok(Frame::Response { outcome: Ok(_), .. }) => Ok(()),
            other => Err(io::Error::other(format!(
                "no answer to initialize: {other:?}"
            ))),
        }
    }

    fn say(&self, method: &str, params: Value) -> io::Result<()> {
        print(&Frame::notification(method, params).to_line())
    }

    fn deliver(&self, name: &str, content: &str) -> io::Result<()> {
        std::fs::create_dir_all(&self.deliverables)?;
        std::fs::write(self.deliverables.join(name), content)
    }

    fn write_result(&self, success: bool, summary: &str) -> io::Result<()> {
        let file = ConversationFile {
            format: CONVERSATION_FORMAT,
            agent_id: self.job.agent_id,
            task_id: self.job.task_id.clone(),
            role_id: self.job.role_id.clone(),
            summary: self.job.summary.clone(),
            status: if success {
                Status::Completed
            } else {
                Status::Failed
            },
            created_at: self.job.created_at.clone(),
            completed_at: Some(self.job.created_at.clone()),
            messages: vec![Message::user("the task")],
            stats: Stats {
                turns: 1,
                ..Stats::default()
            },
            result: Some(Outcome {
                success,
                summary: summary.to_owned(),
                stop_reason: None,
            }),
            other: serde_json::Map::new(),
        };
        std::fs::write(
            self.agent_dir.join(CONVERSATION_FILE),
            serde_json::to_vec(&file)?,
        )
    }

    /// Leaves a result file that is none, and a deliverable beside it.
    fn torn(&self, content: &str) -> io::Result<u8> {
        self.deliver("kept.txt", "still listed")?;
        std::fs::write(self.agent_dir.join(CONVERSATION_FILE), content)?;
        Ok(0)
    }

    /// Puts something else where the result file belongs.
    fn replace_result(&self, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<u8> {
        let path = self.agent_dir.join(CONVERSATION_FILE);
        std::fs::remove_file(&path).ok();
        make(&path).map(|()| 0)
    }

    /// Banners, colours and half lines around good frames.
    fn junk(&self) -> io::Result<u8> {
        print("Service started v1.2\n\u{1b}[32mready\u{1b}[0m\n{\"jsonrpc\": \"2.0\", \"met\n")?;
        self.initialize()?;
        print("{\"method\": 5}\n\n[]\n")?;
        self.say("agent/unknown_method", json!({"x": 1}))?;
        self.deliver("good.txt", "good")?;
        self.write_result(true, "good in spite of junk")?;
        self.say(channel::FINISHED, finished(true, "good in spite of junk"))?;
        print("goodbye {")?;
        Ok(0)
    }

    /// Prints far more than a pipe holds on both outputs before it is done.
    fn chatty(&self) -> io::Result<u8> {
        self.initialize()?;
        let line = format!("{}\n", "chatter ".repeat(128));
        let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr().lock());
        for _ in 0..CHATTER_BYTES / line.len() {
            stdout.write_all(line.as_bytes())?;
            stderr.write_all(line.as_bytes())?;
        }
        drop((stdout, stderr));
        self.write_result(true, "said a lot and did it")?;
        Ok(0)
    }

    /// Prints as fast as it can on both outputs, without an end.
    fn flood(&self) -> io::Result<u8> {
        self.initialize()?;
        let line = format!("{}\n", "flood ".repeat(1024));
        let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr().lock());
        loop {
            stdout.write_all(line.as_bytes())?;
            stderr.write_all(line.as_bytes())?;
        }
    }

    /// Links in circles, to the root, and to nowhere, among the deliverables.
    fn links(&self) -> io::Result<u8> {
        for folder in ["d1", "d2"] {
            std::fs::create_dir_all(self.deliverables.join(folder))?;
        }
        for (target, name) in [
            (".", "loop"),
            ("../d2", "d1/l"),
            ("../d1", "d2/l"),
            ("/", "root"),
            ("nowhere", "dangling"),
        ] {
            std::os::unix::fs::symlink(target, self.deliverables.join(name))?;
        }
        mkfifo(&self.deliverables.join("pipe"))?;
        self.deliver("real.txt", "real")?;
        self.write_result(true, "links everywhere")?;
        Ok(0)
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Prints so many MiB without a newline, and stays.
fn print_without_end(mebibytes: usize) -> io::Result<u8> {
    let mut stdout = io::stdout().lock();
    let piece = vec![b'x'; 1024 * 1024];
    for _ in 0..mebibytes {
        stdout.write_all(&piece)?;
    }
    stdout.flush()?;
    drop(stdout);
    if mebibytes > 100 { hang() } else { Ok(0) }
}

fn mkfifo(path: &Path) -> io::Result<()> {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600))
        .map_err(io::Error::from)
}

fn finished(success: bool, summary: &str) -> Value {
    json!({"success": success, "summary": summary, "stop_reason": null, "stats": Stats::default()})
}

fn progress(action: &str) -> Value {
    json!({"stats": Stats::default(), "last_action": action, "state": "running", "output_tail": ""})
}

/// Stays, deaf to everything but SIGKILL.
fn hang() -> io::Result<u8> {
    nix::sys::signal::SigSet::all().thread_block()?;
    std::thread::sleep(FOR_EVER);
    Ok(98)
}
