//! `finish_task`: the report that ends a run. The loop sees to the end itself.

use std::time::Duration;

use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{FINISH_TASK, FinishTaskParams};
use serde_json::json;

use super::{Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult};

/// The tool.
#[derive(Debug)]
pub(crate) struct FinishTask;

impl Tool for FinishTask {
    fn name(&self) -> &'static str {
        FINISH_TASK
    }

    fn action(&self, _arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Reporting, "")
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        _within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(std::future::ready(report(&context.prompts, arguments)))
    }
}

fn report(prompts: &Prompts, arguments: &str) -> ToolResult {
    let params: FinishTaskParams = parse_text(arguments)?;
    let mut value = json!({
        "success": true,
        "message": prompts.finish_message(),
        "will_terminate": true,
    });
    if let Some(warning) = prompts.report_length_warning(&params.summary) {
        value["warning"] = warning.into();
    }
    Ok(ToolOutput {
        value,
        tally: Tally::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::error::ErrorCode;
    use protocol::status::Language;

    fn zh(summary: &str) -> ToolResult {
        let arguments = json!({"success": true, "summary": summary}).to_string();
        report(&Prompts::builtin(Language::Zh), &arguments)
    }

    #[test]
    fn a_report_of_the_wanted_length_is_taken_without_a_word() {
        for chars in [50, 200] {
            assert_eq!(
                zh(&"好".repeat(chars)).unwrap().value,
                json!({"success": true, "message": "任务已完成，子智能体即将退出",
                       "will_terminate": true})
            );
        }
    }

    #[test]
    fn a_report_of_another_length_is_taken_with_a_warning() {
        for chars in [0, 49, 201, 4_000] {
            let value = zh(&"好".repeat(chars)).unwrap().value;
            assert_eq!(value["success"], true);
            let warning = value["warning"].as_str().unwrap();
            assert!(warning.contains(&chars.to_string()), "{warning}");
        }
    }

    #[test]
    fn a_report_that_is_none_is_refused() {
        assert_eq!(
            zh(&"好".repeat(4_001)).unwrap_err().code,
            ErrorCode::InvalidParameters
        );
        let prompts = Prompts::builtin(Language::En);
        for arguments in [
            "",
            "{\"success\": true}",
            "{\"summary\": \"x\"}",
            "null",
            "5",
        ] {
            let error = report(&prompts, arguments).unwrap_err();
            assert_eq!(error.code, ErrorCode::InvalidParameters, "{arguments}");
        }
    }
}
