#!/usr/bin/env python3
"""Ten small file tasks for a real, sloppy model: do all agents reach a truthful end?

    benches/real-model.sh 18099 &                    # once it has printed its URL
    benches/real-tasks.py http://127.0.0.1:18099/v1 [--at-once 5] [--leader target/release/leader]

It opens a conversation in a temporary workspace, creates ten agents over the control socket (one
after the other, or so many at once), and prints a line for each: how it ended, whether the wanted
file is there with the wanted words, and what the model did instead when it is not. Exit code 1 when
an agent did not end, or something was left running; a missed file is the model's business.
"""
import argparse, json, os, pathlib, signal, socket, subprocess, sys, tempfile, threading, time

TASKS = [
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
            number, (name, content) = queue.pop(0)
        except IndexError:
            return
        folder = f"out/{number}"
        start = time.monotonic()
        results[number] = client.call("create_sub_agent", {
            "agent_id": number, "summary": f"create the file {name}", "deliverables_dir": folder,
            "timeout_seconds": limit,
            "task": f"Create the file {folder}/{name} with exactly this content:\n{content}\nThen report with finish_task.",
        }), time.monotonic() - start
        # Said at once: a run of a slow model that is broken off has told of those that ended.
        print(f"{number:3} has ended: {results[number][0].get('status')}", file=sys.stderr, flush=True)


def judge(workspace, number, answer):
    """Whether the wanted file is there, and what the model did when it is not."""
    name, content = TASKS[number - 1]
    folder = pathlib.Path(workspace, "out", str(number))
    wanted = folder / name
    if wanted.is_file():
        return ("delivered", "") if content in wanted.read_text(errors="replace") else ("other content", "")
    conversation = json.loads((folder / ".subagent/conversations.json").read_text())
    calls = [f"{call['function']['name']}({call['function']['arguments'][:70]})"
             for message in conversation["messages"] for call in message.get("tool_calls", [])]
    return "no file", "; ".join(calls[:3]) or "no call at all"


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser()
    parser.add_argument("base_url")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--limit", type=int, default=180, help="deadline of an agent in seconds")
    parser.add_argument("--leader", default="target/release/leader")
    options = parser.parse_args()
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
max_output_tokens = 400
timeouts = {{ first_byte_seconds = 900 }}   # a loaded machine reads slowly
body = {{ temperature = 0, tool_choice = "required", parallel_tool_calls = false }}
""")
        env = {"PATH": os.environ["PATH"], "HOME": str(home)}
        leader = subprocess.Popen([os.path.abspath(options.leader), "serve", "--json"], cwd=workspace,
                                  env=env, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            path = json.loads(leader.stdout.readline())["socket"]
            queue, results = list(enumerate(TASKS, 1)), {}
            start = time.monotonic()
            threads = [threading.Thread(target=work, args=(path, queue, results, options.limit))
                       for _ in range(options.at_once)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took = time.monotonic() - start
            delivered = 0
            for number, (answer, seconds) in sorted(results.items()):
                verdict, why = judge(workspace, number, answer)
                delivered += verdict == "delivered"
                print(f"{number:3} {answer.get('status', '?'):10} {answer.get('stop_reason') or '-':16} {seconds:6.1f} s "
                      f"{answer['stats']['turns']:2} turns  {verdict:14} {why}")
            left = Socket(path).call("list_active_sub_agents", {})["agents"]
            Socket(path).call("shutdown", {})
            code = leader.wait(timeout=30)
            ended = len(results) == len(TASKS)
            print(f"{len(results)} of {len(TASKS)} ended, {delivered} delivered the wanted file, {took:.0f} s in all, "
                  f"{len(left)} left active, leader exit code {code}")
        finally:
            # A run that is broken off leaves no leader, and so no agent, behind.
            leader.kill()
            leader.wait()
        return 0 if ended and not left else 1


sys.exit(main())
