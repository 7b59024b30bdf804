//! The supervisor's sentences, said with the texts that agents read.

use protocol::status::{Language, Status};

use crate::core::supervisor::AgentTexts;
use crate::driver::plan::Texts;

impl AgentTexts for Texts {
    fn result_message(&self, language: Language, status: Status, display_name: &str) -> String {
        self.of(language).result_message(status, display_name)
    }

    fn empty_deliverables(&self, language: Language, deliverables_dir: &str) -> String {
        self.of(language)
            .deliverables_empty_warning(deliverables_dir)
    }
}
