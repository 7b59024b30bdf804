//! Every bound that both sides must agree on, named with its unit.

/// One line on the channel or the control socket, without its newline.
pub const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Paths that one layer of the configuration may add to what is hidden.
pub const SECRET_PATHS_MAX: usize = 64;
/// Variables that commands may be let see by name.
pub const ENV_ALLOW_MAX: usize = 64;
/// Lines that are no valid frame, kept for the log, per worker.
pub const JUNK_BYTES_MAX: usize = 1024 * 1024;
/// A worker's stderr in worker.log: head and tail together.
pub const WORKER_LOG_BYTES_MAX: u64 = 10 * 1024 * 1024;
/// The task text of one agent.
pub const TASK_BYTES_MAX: usize = 200_000;
/// A summary: wanted range in Unicode scalar values.
pub const SUMMARY_CHARS_WANTED: std::ops::RangeInclusive<usize> = 10..=30;
/// A summary longer than this is refused.
pub const SUMMARY_CHARS_MAX: usize = 200;
/// A report's summary: wanted range in Unicode scalar values.
pub const REPORT_CHARS_WANTED: std::ops::RangeInclusive<usize> = 50..=200;
/// A report's summary longer than this is refused.
pub const REPORT_CHARS_MAX: usize = 4_000;
/// A result as the caller's model sees it.
pub const RESULT_BYTES_MAX: usize = 8 * 1024;
/// Names of files in a result for a model.
pub const RESULT_NAMES_BYTES_MAX: usize = 2 * 1024;
/// Names of files in a result for people and manifests.
pub const RESULT_NAMES_MAX: usize = 1_000;
/// Entries that a walk of a deliverables dir visits before it gives up counting.
pub const DELIVERABLES_ENTRIES_MAX: usize = 1_000_000;
/// A tool result longer than this goes to a file, with head and tail in the message.
pub const TOOL_RESULT_CHARS_MAX: usize = 30_000;
/// An agent's report inside a notice.
pub const NOTICE_REPORT_BYTES_MAX: usize = 4 * 1024;
/// An image that a model is shown.
pub const MEDIA_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// All images of one request; a request holds them in a text a third longer.
pub const MEDIA_SHOWN_BYTES_MAX: u64 = 6 * 1024 * 1024;
/// A question to a search engine.
pub const WEB_QUERY_CHARS_MAX: usize = 500;
/// Hosts that `web.allow_hosts` may name.
pub const WEB_ALLOW_HOSTS_MAX: usize = 100;
/// MCP servers that may be configured.
pub const MCP_SERVERS_MAX: usize = 16;
/// Bytes of the name of such a server.
pub const MCP_SERVER_NAME_BYTES_MAX: usize = 32;
/// Arguments of such a server.
pub const MCP_ARGS_MAX: usize = 64;
/// Variables that such a server may name.
pub const MCP_ENV_MAX: usize = 32;
/// The longest call of a tool of such a server, unless it is configured, in seconds.
pub const MCP_CALL_SECONDS: u32 = 60;
/// The greatest of what may be configured for that, in seconds.
pub const MCP_CALL_SECONDS_MAX: u32 = 600;
/// Bytes of a tool's name: what the providers take.
pub const MCP_TOOL_NAME_BYTES_MAX: usize = 64;
/// Skills that a system prompt lists.
pub const SKILLS_LISTED_MAX: usize = 40;
/// What a system prompt says of one skill.
pub const SKILL_DESCRIPTION_CHARS_MAX: usize = 200;
/// One file of prompts of the user's own.
pub const PROMPT_FILE_BYTES_MAX: usize = 64 * 1024;
/// conversations.json as the leader is willing to read it.
pub const CONVERSATION_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// `agent/progress` notifications per second.
pub const PROGRESS_PER_SECOND_MAX: u32 = 5;
/// `last_output` and `output_tail` of an agent.
pub const OUTPUT_TAIL_BYTES_MAX: usize = 2 * 1024;
/// `last_action` of an agent.
pub const LAST_ACTION_CHARS_MAX: usize = 200;

/// The largest number of an agent that a person's command or batch file gives or gets; tool
/// parameters go to 99.
pub const PERSON_AGENT_ID_MAX: u32 = 100_000;
/// The shortest value that is masked, in bytes: shorter ones stand in ordinary texts.
pub const SECRET_BYTES_MIN: usize = 8;
/// The shortest value of small letters alone that is masked, in bytes.
pub const SECRET_PLAIN_BYTES_MIN: usize = 12;
/// The longest value that is masked, in bytes: the most that a variable can hold.
pub const SECRET_BYTES_MAX: usize = 128 * 1024;
/// Values that are masked; each line of a value of several lines is one.
pub const SECRETS_MAX: usize = 512;

/// The least that `confinement.memory` may say, in bytes: a worker alone needs a third of it.
pub const MEMORY_CAP_BYTES_MIN: u64 = 64 << 20;
/// The least that `confinement.disk` may say, in bytes.
pub const DISK_CAP_BYTES_MIN: u64 = 1 << 20;
/// The most that a cap on bytes may say.
pub const CAP_BYTES_MAX: u64 = 1 << 50;
/// The most that `confinement.cpu_seconds` may say.
pub const CPU_CAP_SECONDS_MAX: u64 = 1 << 30;
/// Files and directories that an agent with a cap on its disk space may have where it writes; more
/// than these are not counted either.
pub const DISK_ENTRIES_MAX: u64 = 200_000;

/// Agents that may use a model at once.
pub const MAX_CONCURRENT_DEFAULT: u32 = 5;
/// The most that `limits.max_concurrent` may say.
pub const MAX_CONCURRENT_MAX: u32 = 1_000;
/// The most live processes, busy or not, that `limits.max_live` may say.
pub const MAX_LIVE_MAX: u32 = 5_000;
/// The least default of `limits.max_live`.
pub const MAX_LIVE_DEFAULT_MIN: u32 = 20;
/// A run's deadline when nobody says one, in seconds.
pub const TIMEOUT_SECONDS_DEFAULT: u32 = 600;
/// The least deadline that a model may ask for, in seconds.
pub const TIMEOUT_SECONDS_MIN: u32 = 60;
/// The greatest deadline, in seconds.
pub const TIMEOUT_SECONDS_MAX: u32 = 3_600;
/// From spawn to `initialize`, in seconds.
pub const START_TIMEOUT_SECONDS: u32 = 10;
/// From `agent/stop` to the kill, in seconds.
pub const GRACE_SECONDS: u32 = 5;
/// The greatest grace, in seconds.
pub const GRACE_SECONDS_MAX: u32 = 60;
/// From `agent/stop` to SIGTERM at the latest, in milliseconds; half the grace when that is less.
pub const TERM_AFTER_MS_MAX: u64 = 2_000;
/// From the kill to a verified empty tree, in milliseconds.
pub const EMPTY_WITHIN_MS: u64 = 2_000;
/// A teammate that is idle, in seconds.
pub const IDLE_TIMEOUT_SECONDS: u32 = 60;
/// Waiting for an answer, in seconds.
pub const ANSWER_TIMEOUT_SECONDS: u32 = 600;
/// A wait for other agents, in seconds.
pub const WAIT_SECONDS_MAX: u32 = 600;
/// In the queue, in seconds.
pub const QUEUE_TIMEOUT_SECONDS: u32 = 3_600;
/// Turns of an agent when nobody says otherwise.
pub const MAX_TURNS_DEFAULT: u32 = 50;
/// Reminders in a row without a tool call between.
pub const REMINDERS_MAX: u32 = 3;
/// The same call with the same result: the model is told.
pub const LOOP_WARN_COUNT: u32 = 3;
/// The same call with the same result: the run is stopped.
pub const LOOP_STOP_COUNT: u32 = 5;
/// Answers in a row that were cut at the model's output limit.
pub const OUTPUT_LIMIT_RETRIES_MAX: u32 = 3;
/// The time warning comes when this share of the deadline has passed, in percent.
pub const TIME_WARNING_PERCENT: u32 = 80;

/// A command's time-out when the model says none, in seconds.
pub const COMMAND_SECONDS_DEFAULT: u32 = 120;
/// The greatest time-out of a command, in seconds.
pub const COMMAND_SECONDS_MAX: u32 = 600;
/// Commands of one agent that run in the background at a time.
pub const BACKGROUND_COMMANDS_MAX: usize = 8;
/// What is announced of a background command that has ended, in bytes.
pub const BACKGROUND_RESULT_BYTES_MAX: usize = 3 * 1024;
/// From a command's SIGTERM to its SIGKILL, in milliseconds.
pub const COMMAND_GRACE_MS: u64 = 1_000;

/// Retries of one model call.
pub const MODEL_RETRIES_MAX: u32 = 5;
/// To connect to a model, in seconds.
pub const MODEL_CONNECT_SECONDS: u32 = 10;
/// To the first byte of an answer, in seconds.
pub const MODEL_FIRST_BYTE_SECONDS: u32 = 180;
/// Between two pieces of an answer, in seconds.
pub const MODEL_GAP_SECONDS: u32 = 60;
/// A whole answer of a model, in bytes.
pub const MODEL_REPLY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The bytes that a streamed answer comes in: each token has some hundred bytes around it, so this
/// is far more than the answer itself may have.
pub const MODEL_STREAM_BYTES_MAX: usize = 256 * 1024 * 1024;
/// One event of a streamed answer, in bytes.
pub const MODEL_EVENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What is read of an answer that is an error, in bytes.
pub const MODEL_ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// What is shown of an answer that is an error, in characters.
pub const MODEL_ERROR_CHARS_MAX: usize = 200;
/// The conversation is shortened when this share of the model's context is in use, in percent.
pub const CONTEXT_FULL_PERCENT: u32 = 80;
/// The last answers of the model that stay as they are when a conversation is shortened.
pub const TURNS_KEPT: u32 = 3;
/// An old result of a call that is at least so long goes to a file when a conversation is
/// shortened, in bytes.
pub const OLD_RESULT_BYTES_MIN: usize = 1_024;
/// What a model gets that is to summarise a conversation, in bytes.
pub const SUMMARY_SOURCE_BYTES_MAX: usize = 32 * 1024;
/// A summary of a conversation, in bytes; a longer one is cut.
pub const SUMMARY_BYTES_MAX: usize = 16 * 1024;
/// The last turns that stay beside a summary, in bytes.
pub const TURNS_KEPT_BYTES_MAX: usize = 48 * 1024;
/// The model is told when this share of its budget of tokens is used, in percent.
pub const TOKEN_WARNING_PERCENT: u32 = 80;
/// How often in a row a model is told that the server could not read what it wrote.
pub const UNREADABLE_OUTPUT_NUDGES_MAX: u32 = 2;
/// Retries of one model call because the server could not read what its own model wrote.
pub const MODEL_UNREADABLE_RETRIES_MAX: u32 = 2;
/// Tokens of one answer where an interface wants a number and nobody says one.
pub const MODEL_OUTPUT_TOKENS_DEFAULT: u32 = 16_384;
/// The fewest tokens of thought that can be asked for.
pub const MODEL_THINKING_TOKENS_MIN: u32 = 1_024;
/// Retries of one model call because the model was silent.
pub const MODEL_STALL_RETRIES_MAX: u32 = 2;
/// Retries of one model call because its answer broke after some of it was there.
pub const MODEL_LATE_CUT_RETRIES_MAX: u32 = 1;
/// Retries of one model call because a good status came with something that is no answer.
pub const MODEL_BAD_REPLY_RETRIES_MAX: u32 = 2;
/// The longest first pause before a retry, in milliseconds; it doubles with each retry.
pub const MODEL_BACKOFF_MS_BASE: u64 = 500;
/// The longest pause before a retry that the server did not ask for, in milliseconds.
pub const MODEL_BACKOFF_MS_MAX: u64 = 30_000;
/// How long the end of a stream is waited for once the answer is whole, in milliseconds.
pub const MODEL_AFTER_FINISH_MS: u64 = 5_000;
/// How long a stream that has said its last word may take to close, in milliseconds; then its
/// connection is given up.
pub const MODEL_DRAIN_MS: u64 = 50;
/// A file of scripted replies, in bytes.
pub const SCRIPT_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// The most that a model's three time-outs may say, in seconds.
pub const MODEL_TIMEOUT_SECONDS_MAX: u32 = 3_600;
/// The most that a model's `max_output_tokens` and `context_tokens` may say.
pub const MODEL_TOKENS_MAX: u32 = 100_000_000;
/// The key of a `[models.KEY]`.
pub const MODEL_KEY_CHARS_MAX: usize = 64;

/// A batch file, in bytes.
pub const BATCH_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// One line of a batch file, in bytes: the longest task, every character of it escaped.
pub const BATCH_LINE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Items of one batch.
pub const BATCH_ITEMS_MAX: usize = 10_000;
/// The id of a batch's item.
pub const BATCH_ID_CHARS_MAX: usize = 64;
/// Items that one item needs.
pub const BATCH_NEEDS_MAX: usize = 100;
/// A manifest as the leader is willing to read it, in bytes.
pub const MANIFEST_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// One configuration file.
pub const CONFIG_BYTES_MAX: usize = 1024 * 1024;
/// The most that a deadline or time-out of `[limits]` may say, in seconds: a day.
pub const CONFIG_SECONDS_MAX: u32 = 86_400;
/// The most that `limits.start_timeout_seconds` may say, in seconds.
pub const START_TIMEOUT_SECONDS_MAX: u32 = 600;
/// The most that `limits.max_total_per_run` may say.
pub const TOTAL_PER_RUN_MAX: u32 = 1_000_000;
/// The least that `limits.result_bytes` may say: names and the fixed fields need that much.
pub const RESULT_BYTES_SETTING_MIN: u32 = 4 * 1024;
/// The most that `limits.result_bytes` may say.
pub const RESULT_BYTES_SETTING_MAX: u32 = 64 * 1024;
/// How long ended runs are kept unless it is set, in days.
pub const RETENTION_DAYS: u32 = 30;
/// The most that `retention.days` may say.
pub const RETENTION_DAYS_MAX: u32 = 3_650;
/// How many ended runs of a workspace are kept unless it is set.
pub const RETENTION_RUNS: u32 = 200;
/// The most that `retention.runs` may say.
pub const RETENTION_RUNS_MAX: u32 = 10_000;
/// The record of an accepted workspace's file, in bytes.
pub const TRUST_RECORD_BYTES_MAX: usize = 64 * 1024;
/// How long a model may take when it is only asked whether it answers, in milliseconds.
pub const MODEL_CHECK_MS_MAX: u64 = 10_000;
/// The most tokens of its answer then.
pub const MODEL_CHECK_TOKENS: u32 = 64;
/// What a worker reads that is asked for it, in bytes.
pub const MODEL_CHECK_BYTES_MAX: u64 = 1024 * 1024;
