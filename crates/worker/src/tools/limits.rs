//! Bounds of the tools that only the tools themselves must know.

/// Components of a path, links resolved; each holds one descriptor while it is walked.
pub(crate) const PATH_COMPONENTS_MAX: usize = 256;
/// Symbolic links followed in one path, as many as the kernel follows.
pub(crate) const PATH_LINKS_MAX: usize = 40;
/// Names of a directory that are looked at for "did you mean".
pub(crate) const SIMILAR_NAMES_MAX: usize = 1_000;
/// Tries for a temporary name that nobody else uses.
pub(crate) const TEMP_NAME_TRIES_MAX: u32 = 64;

/// A file up to this size is read whole; of a longer one only what is shown is kept.
pub(crate) const WHOLE_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// How far into a longer file lines are counted.
pub(crate) const SCAN_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes at the start of a longer file that decide what it is.
pub(crate) const SNIFF_BYTES_MAX: usize = 1024 * 1024;
/// Characters of one answer of `read_file`, whatever `max_chars` says.
pub(crate) const READ_CHARS_MAX: usize = 24_000;
/// Characters of one line, where several lines are shown.
pub(crate) const READ_LINE_CHARS_MAX: usize = 2_000;
/// Bytes of one line that are kept while a longer file is read.
pub(crate) const READ_LINE_BYTES_MAX: usize = 128 * 1024;
/// The longest that reading one file may take, in seconds.
pub(crate) const READ_SECONDS_MAX: u64 = 30;

/// A file that `edit_file` is willing to change, in bytes, before and after.
pub(crate) const EDIT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Lines named when a text occurs several times.
pub(crate) const EDIT_LINES_NAMED_MAX: usize = 20;
/// Lines of a file that are compared when a text does not occur.
pub(crate) const NEAREST_LINES_MAX: usize = 50_000;
/// Places that are compared closely when a text does not occur.
pub(crate) const NEAREST_PLACES_MAX: usize = 12;
/// Lines of the nearest text that are shown.
pub(crate) const NEAREST_SHOWN_LINES_MAX: usize = 40;
/// Characters of a text that are compared closely.
pub(crate) const NEAREST_CHARS_MAX: usize = 2_000;

/// Output of one command that is kept from its start, in bytes.
pub(crate) const OUTPUT_HEAD_BYTES_MAX: usize = 256 * 1024;
/// Output of one command that is kept from its end, in bytes.
pub(crate) const OUTPUT_TAIL_BYTES_MAX: usize = 768 * 1024;
/// A line that may still be overwritten by a carriage return, in bytes.
pub(crate) const OUTPUT_LINE_BYTES_MAX: usize = 16 * 1024;
/// One read of a command's output, in bytes.
pub(crate) const OUTPUT_READ_BYTES: usize = 64 * 1024;
/// From the end of a command's shell until its output is no longer waited for, in milliseconds.
pub(crate) const OUTPUT_DRAIN_MS: u64 = 500;
/// From the moment at which a command should have been ended by its keeper until it is hung up on,
/// in milliseconds.
pub(crate) const KEEPER_LATE_MS: u64 = 5_000;
/// From the kill of a command until its end is no longer waited for, in milliseconds.
pub(crate) const KILL_WAIT_MS: u64 = 5_000;
/// From the start of an MCP server until it has told its tools, in seconds.
pub(crate) const MCP_START_SECONDS: u64 = 10;
/// How often an MCP server is started in one run.
pub(crate) const MCP_STARTS_MAX: u32 = 2;
/// How long telling an MCP server that a call is given up may take, in milliseconds.
pub(crate) const MCP_CANCEL_MS: u64 = 1_000;
/// Bytes of one message of an MCP server.
pub(crate) const MCP_LINE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Lines that an MCP server may write until it has answered.
pub(crate) const MCP_LINES_MAX: usize = 10_000;
/// Bytes that an MCP server may write until it has answered.
pub(crate) const MCP_ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Pages of the list of tools of an MCP server.
pub(crate) const MCP_PAGES_MAX: usize = 20;
/// Tools of an MCP server.
pub(crate) const MCP_TOOLS_MAX: usize = 128;
/// Bytes of the schema of one of its tools: it stands in each request.
pub(crate) const MCP_SCHEMA_BYTES_MAX: usize = 16 * 1024;
/// Characters of the description of one of its tools.
pub(crate) const MCP_DESCRIPTION_CHARS_MAX: usize = 2_000;
/// Bytes of the standard error of an MCP server that are kept in its file.
pub(crate) const MCP_LOG_BYTES_MAX: usize = 256 * 1024;
/// Bytes of it that are told when the server is gone.
pub(crate) const MCP_TAIL_BYTES: usize = 1_000;
/// From the start of a jail's trial until it is given up, in milliseconds.
pub(crate) const TRIAL_MS: u64 = 5_000;
/// Background commands that are remembered after their end; older ones are forgotten.
pub(crate) const BACKGROUND_ENDED_MAX: usize = 32;
/// Output shown of each background command where several are shown, in bytes.
pub(crate) const BACKGROUND_SHOWN_BYTES_MAX: usize = 2 * 1024;
/// Characters of a background command by which the model knows it again.
pub(crate) const BACKGROUND_LINE_CHARS_MAX: usize = 200;
/// How long a look at background commands that run waits for an end, in seconds.
pub(crate) const BACKGROUND_CHECK_SECONDS: u64 = 10;
/// From the end of the run until its background commands are no longer asked but dropped, which
/// kills them, in milliseconds.
pub(crate) const BACKGROUND_END_MS: u64 = 1_500;
/// What may be told of one command, in bytes.
pub(crate) const REPORT_BYTES_MAX: usize = 256 * 1024;
/// A command text, in bytes; the kernel takes 128 KiB in one argument.
pub(crate) const COMMAND_BYTES_MAX: usize = 100 * 1024;

/// Entries looked at for skills, in one folder of them.
pub(crate) const SKILLS_MAX: usize = 200;
/// The name of a skill.
pub(crate) const SKILL_NAME_CHARS_MAX: usize = 64;
/// The front matter of a skill, in bytes.
pub(crate) const SKILL_FRONT_BYTES_MAX: usize = 8 * 1024;
/// What a front matter may come to when its aliases are expanded, in events of the YAML parser.
pub(crate) const SKILL_FRONT_EVENTS_MAX: usize = 10_000;
/// A file of a skill, in bytes.
pub(crate) const SKILL_FILE_BYTES_MAX: u64 = 64 * 1024;
/// Files of a skill's folder that are named.
pub(crate) const SKILL_FILES_NAMED_MAX: usize = 50;
/// What is told of a workspace's instructions, in bytes.
pub(crate) const INSTRUCTIONS_BYTES_MAX: usize = 16 * 1024;

/// An address of the web, in bytes.
pub(crate) const WEB_URL_BYTES_MAX: usize = 4 * 1024;
/// Redirects followed to one page.
pub(crate) const WEB_REDIRECTS_MAX: usize = 5;
/// Addresses of one host that are looked at.
pub(crate) const WEB_ADDRESSES_MAX: usize = 16;
/// To connect to a server of the web, in seconds.
pub(crate) const WEB_CONNECT_SECONDS: u64 = 10;
/// The longest that fetching one page may take, in seconds.
pub(crate) const WEB_SECONDS_MAX: u64 = 30;
/// What is read of one page, in bytes.
pub(crate) const WEB_PAGE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes at the start of a page that decide what it is.
pub(crate) const WEB_SNIFF_BYTES: usize = 1024;
/// The longest that a page may take to be made text, in seconds.
pub(crate) const WEB_PARSE_SECONDS_MAX: u64 = 20;
/// How deep the elements of a page may lie in each other to be parsed.
pub(crate) const WEB_NESTING_MAX: usize = 500;
/// Elements of a page whose main text is looked for.
pub(crate) const WEB_ELEMENTS_MAX: usize = 50_000;
/// Characters shown of a page when the model says nothing.
pub(crate) const WEB_CHARS_DEFAULT: usize = 12_000;
/// Characters shown of a page, whatever `max_chars` says.
pub(crate) const WEB_CHARS_MAX: usize = 24_000;
/// The longest that a search engine may take, in seconds.
pub(crate) const SEARCH_ENGINE_SECONDS_MAX: u64 = 20;
/// An answer of a search engine, in bytes.
pub(crate) const SEARCH_ENGINE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Results of a search of the web when the model says nothing.
pub(crate) const HITS_DEFAULT: usize = 5;
/// Characters of the title of one.
pub(crate) const HIT_TITLE_CHARS_MAX: usize = 200;
/// Characters of what is said of one.
pub(crate) const HIT_SNIPPET_CHARS_MAX: usize = 500;

/// Characters shown of the start of a result that went to a file.
pub(crate) const LARGE_HEAD_CHARS: usize = 8_000;
/// Characters shown of the end of a result that went to a file.
pub(crate) const LARGE_TAIL_CHARS: usize = 12_000;
/// Numbers tried for a file of a long result.
pub(crate) const LARGE_FILES_MAX: u32 = 100_000;

/// Matches shown when the model says nothing.
pub(crate) const SEARCH_RESULTS_DEFAULT: usize = 100;
/// Characters shown of a line that matches.
pub(crate) const SEARCH_LINE_CHARS_MAX: usize = 300;
/// Bytes shown before the match in a line that is too long to be shown whole.
pub(crate) const SEARCH_BEFORE_BYTES: usize = 100;
/// Characters of all lines of one answer.
pub(crate) const SEARCH_CHARS_MAX: usize = 24_000;
/// Matches counted beyond those shown.
pub(crate) const SEARCH_COUNTED_MAX: u64 = 100_000;
/// Bytes of a file of ignore rules; a directory with a longer one is left out.
pub(crate) const IGNORE_FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Bytes at the start of a file that decide its encoding.
pub(crate) const SEARCH_SNIFF_BYTES: usize = 64 * 1024;
/// Names visited in one search.
pub(crate) const SEARCH_ENTRIES_MAX: u64 = 1_000_000;
/// Bytes read in one search.
pub(crate) const SEARCH_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;
/// One line, as the search is willing to hold it, in bytes.
pub(crate) const SEARCH_HEAP_BYTES_MAX: usize = 16 * 1024 * 1024;
/// A compiled pattern, in bytes.
pub(crate) const SEARCH_PATTERN_BYTES_MAX: usize = 10 * 1024 * 1024;
/// The longest that one search may take, in seconds.
pub(crate) const SEARCH_SECONDS_MAX: u64 = 30;
