//! The replies of a recorded conversation, to be given once more.

use protocol::conversation::{ConversationFile, Role};
use serde_json::Value;

use super::file::{Call, Reply};

/// The answers of the model in the text of a `conversations.json`; none when it is something else.
///
/// # Errors
/// When it is such a file by its look and can't be read as one, or holds no answer.
pub(super) fn recorded(text: &str) -> Option<Result<Vec<Reply>, String>> {
    let document: Value = serde_json::from_str(text).ok()?;
    document.get("messages")?;
    Some(replies(document))
}

fn replies(document: Value) -> Result<Vec<Reply>, String> {
    let file: ConversationFile = serde_json::from_value(document)
        .map_err(|error| format!("it has messages, but is no recorded conversation: {error}"))?;
    let answers = file
        .messages
        .into_iter()
        .filter(|message| message.role == Role::Assistant);
    let replies: Vec<Reply> = answers
        .map(|answer| Reply {
            text: answer.content.filter(|text| !text.is_empty()),
            reasoning: answer.reasoning_content,
            tool_calls: answer
                .tool_calls
                .into_iter()
                .map(|call| Call {
                    name: call.function.name,
                    arguments: Value::String(call.function.arguments),
                })
                .collect(),
            as_recorded: true,
            ..Reply::default()
        })
        .collect();
    if replies.is_empty() {
        return Err("no answer of a model is recorded in it".to_owned());
    }
    Ok(replies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_of_a_conversation_are_replies_to_the_byte() {
        let text = r#"{"format":1,"agent_id":1,"task_id":"sub_00000001","role_id":null,
            "summary":"s","status":"completed","created_at":"2026-03-10T12:00:00Z","messages":[
            {"role":"user","content":"go"},
            {"role":"assistant","content":"I {turn}","reasoning_content":"hm","tool_calls":[
              {"id":"c1","type":"function","function":{"name":"w","arguments":"{\"a\": {task}"}}]},
            {"role":"tool","tool_call_id":"c1","content":"r"},
            {"role":"assistant","content":""}]}"#;
        let first = Reply {
            text: Some("I {turn}".to_owned()),
            reasoning: Some("hm".to_owned()),
            tool_calls: vec![Call {
                name: "w".to_owned(),
                arguments: "{\"a\": {task}".into(),
            }],
            as_recorded: true,
            ..Reply::default()
        };
        let second = Reply {
            as_recorded: true,
            ..Reply::default()
        };
        assert_eq!(recorded(text), Some(Ok(vec![first, second])));
        assert_eq!(recorded("- text: hi"), None);
        assert_eq!(recorded("{\"parts\": []}"), None);
        let no_shape = recorded("{\"messages\": 5}").unwrap().unwrap_err();
        assert!(no_shape.contains("no recorded conversation"), "{no_shape}");
    }
}
