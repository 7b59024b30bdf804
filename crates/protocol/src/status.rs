//! The words for where an agent stands and why it ended.

use serde::{Deserialize, Serialize};

/// Makes an enum of unit variants whose wire word is written once, and which can be listed.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The word on the wire.
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(crate) use words;

words!(
    /// Where an agent stands, as every answer, record and file says it.
    Status {
        /// Known, not yet asked to run.
        Created = "created",
        /// Waits for a slot.
        Queued = "queued",
        /// Has a slot; its process is being started.
        Starting = "starting",
        /// Works.
        Running = "running",
        /// Waits for an answer or an approval.
        Waiting = "waiting",
        /// Has finished a round and waits for the next message.
        Idle = "idle",
        /// Is being stopped.
        Stopping = "stopping",
        /// Ended with a success report, and its process tree has ended.
        Completed = "completed",
        /// Ended without a success report.
        Failed = "failed",
        /// Stopped at its deadline.
        TimedOut = "timed_out",
        /// Stopped because someone asked for it.
        Terminated = "terminated",
        /// Its leader died while it ran.
        Interrupted = "interrupted",
    }
);

impl Status {
    /// Whether the agent has ended for good.
    pub fn is_end(self) -> bool {
        match self {
            Status::Completed
            | Status::Failed
            | Status::TimedOut
            | Status::Terminated
            | Status::Interrupted => true,
            Status::Created
            | Status::Queued
            | Status::Starting
            | Status::Running
            | Status::Waiting
            | Status::Idle
            | Status::Stopping => false,
        }
    }
}

words!(
    /// Why an agent ended otherwise than by a success report; a closed set.
    StopReason {
        /// The worker did not say `initialize` in time.
        StartTimeout = "start_timeout",
        /// No slot came free in time.
        QueueTimeout = "queue_timeout",
        /// The result file is missing, torn, foreign, or no regular file.
        BadResultFile = "bad_result_file",
        /// The model's answers were cut at its output limit again and again.
        OutputLimit = "output_limit",
        /// The leader was told to stop.
        LeaderStopped = "leader_stopped",
        /// Something else than the leader killed the process.
        KilledFromOutside = "killed_from_outside",
        /// Another item that this one needs did not succeed.
        DependencyFailed = "dependency_failed",
        /// The agent itself reported that it did not succeed.
        ReportedFailure = "reported_failure",
        /// The model stopped without the report, also after reminders.
        NoFinish = "no_finish",
        /// Idle for longer than allowed.
        IdleTimeout = "idle_timeout",
        /// It agreed to a request to shut down.
        ShutdownApproved = "shutdown_approved",
        /// Its conversation was closed.
        ConversationClosed = "conversation_closed",
        /// The confinement that was required could not be had.
        ConfinementRefused = "confinement_refused",
        /// The worker broke a rule of the channel that its call depended on.
        ProtocolError = "protocol_error",
        /// Processor time used up.
        CpuLimit = "cpu_limit",
        /// Disk space or file size used up.
        DiskLimit = "disk_limit",
        /// Turns used up.
        TurnLimit = "turn_limit",
        /// Tokens used up.
        TokenLimit = "token_limit",
        /// The same call with the same result, again and again.
        LoopDetected = "loop_detected",
        /// The model could not be reached or refused for good.
        ModelError = "model_error",
        /// The process ended without a report.
        WorkerCrashed = "worker_crashed",
        /// The deadline passed.
        Deadline = "deadline",
        /// Someone asked for the end.
        Terminated = "terminated",
        /// The leader died.
        LeaderDied = "leader_died",
        /// The process could not be started.
        SpawnFailed = "spawn_failed",
        /// Memory used up.
        OutOfMemory = "out_of_memory",
    }
);

words!(
    /// What makes an agent's turn without a tool call an end.
    Completion {
        /// It must call `finish_task`; otherwise it is reminded.
        FinishTask = "finish_task",
        /// It becomes idle and may be woken.
        Idle = "idle",
        /// Its text is its report.
        FinalText = "final_text",
    }
);

words!(
    /// The language in which an agent is spoken to.
    Language {
        /// Chinese.
        Zh = "zh",
        /// English.
        En = "en",
    }
);

impl Language {
    /// The language of a text: Chinese when it holds a Han character.
    pub fn of_text(text: &str) -> Language {
        if text.chars().any(is_han) {
            Language::Zh
        } else {
            Language::En
        }
    }
}

/// Whether a character is a Han ideograph (the blocks of Unicode 16 that hold them).
fn is_han(c: char) -> bool {
    matches!(u32::from(c),
        0x2E80..=0x2FD5 | 0x3005 | 0x3007 | 0x3021..=0x3029 | 0x3038..=0x303B
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAD9 | 0x20000..=0x323AF)
}

words!(
    /// How hard a model is asked to think.
    ThinkingMode {
        /// Answer at once.
        Fast = "fast",
        /// Think first.
        Thinking = "thinking",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_on_the_wire_is_the_word_shown() {
        for status in Status::ALL {
            assert_eq!(
                serde_json::to_string(status).unwrap(),
                format!("\"{status}\"")
            );
        }
        for reason in StopReason::ALL {
            assert_eq!(
                serde_json::to_string(reason).unwrap(),
                format!("\"{reason}\"")
            );
        }
        assert_eq!(StopReason::ALL.len(), 26);
    }

    #[test]
    fn one_han_character_makes_a_text_chinese() {
        assert_eq!(Language::of_text("write the API 文档"), Language::Zh);
        assert_eq!(Language::of_text("écris la doc, пожалуйста"), Language::En);
        assert_eq!(Language::of_text(""), Language::En);
    }
}
