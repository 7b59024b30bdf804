//! One chunk of a stream, or one whole answer, taken apart. Whatever is missing, null or of an
//! odd type is taken as not said.

use protocol::stats::TokenUsage;
use serde_json::Value;

/// What one chunk or answer says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Piece {
    /// Whether there is a choice at all; a chunk with usage has none.
    pub(super) has_choice: bool,
    /// Text.
    pub(super) content: String,
    /// Thoughts.
    pub(super) reasoning: String,
    /// Calls or parts of calls, in order.
    pub(super) calls: Vec<CallPiece>,
    /// Why it ended, if it says so.
    pub(super) finish: Option<String>,
    /// What it cost, if it says so.
    pub(super) usage: Option<TokenUsage>,
}

/// A call, or a part of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CallPiece {
    /// Which call of the answer it belongs to, as the server counts.
    pub(super) index: Option<u64>,
    /// The call's id.
    pub(super) id: Option<String>,
    /// The tool's name.
    pub(super) name: String,
    /// A part of the arguments' text.
    pub(super) arguments: String,
}

impl CallPiece {
    /// About what it takes to be kept, so that empty parts without end are bounded too.
    pub(super) fn bytes(&self) -> usize {
        let id = self.id.as_ref().map_or(0, String::len);
        size_of::<CallPiece>() + id + self.name.len() + self.arguments.len()
    }
}

/// Takes a chunk (`delta`) or a whole answer (`message`) apart.
pub(super) fn piece(document: &Value) -> Piece {
    let choice = document.get("choices").and_then(|choices| choices.get(0));
    // Where usage is asked for it comes beside the choices; one provider puts it inside.
    let usage = usage(document.get("usage")).or_else(|| usage(choice?.get("usage")));
    let Some(choice) = choice else {
        return Piece {
            usage,
            ..Piece::default()
        };
    };
    let said = ["delta", "message"]
        .iter()
        .find_map(|name| choice.get(name).filter(|said| said.is_object()))
        .unwrap_or(&Value::Null);
    let field = |names: &[&str]| {
        let texts = names.iter().map(|name| text(said.get(name)));
        texts.into_iter().find(|text| !text.is_empty())
    };
    let calls = said.get("tool_calls").and_then(Value::as_array);
    Piece {
        has_choice: true,
        content: field(&["content", "refusal"]).unwrap_or_default(),
        reasoning: field(&["reasoning_content", "reasoning"]).unwrap_or_default(),
        calls: calls.into_iter().flatten().map(call).collect(),
        finish: choice
            .get("finish_reason")
            .and_then(Value::as_str)
            .filter(|word| !word.is_empty())
            .map(str::to_owned),
        usage,
    }
}

fn call(value: &Value) -> CallPiece {
    let function = value.get("function").unwrap_or(&Value::Null);
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        // There are servers that send the object itself.
        Some(other) => other.to_string(),
    };
    CallPiece {
        index: value.get("index").and_then(Value::as_u64),
        id: value
            .get("id")
            .and_then(Value::as_str)
            .filter(|id| !id.is_empty())
            .map(str::to_owned),
        name: text(function.get("name")),
        arguments,
    }
}

/// A text, or the texts of a list of content parts.
fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text").and_then(Value::as_str))
            .collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            String::new()
        }
    }
}

fn usage(value: Option<&Value>) -> Option<TokenUsage> {
    let fields = value?.as_object()?;
    let count = |names: [&str; 2]| {
        let mut numbers = names.iter().filter_map(|name| fields.get(*name)?.as_u64());
        numbers.next()
    };
    let prompt = count(["prompt_tokens", "input_tokens"]);
    let completion = count(["completion_tokens", "output_tokens"]);
    if prompt.is_none() && completion.is_none() {
        return None;
    }
    let (prompt, completion) = (prompt.unwrap_or(0), completion.unwrap_or(0));
    Some(TokenUsage {
        prompt,
        completion,
        total: count(["total_tokens", "total"])
            .unwrap_or_else(|| prompt.saturating_add(completion)),
        cached: fields
            .get("prompt_tokens_details")
            .and_then(|details| details.get("cached_tokens"))
            .or_else(|| fields.get("prompt_cache_hit_tokens"))
            .and_then(Value::as_u64)
            .unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_missing_and_odd_fields_are_not_said() {
        // Clients with strict types refused the whole answer for a null where they expected a
        // text or a list.
        let said = |delta: Value| piece(&json!({"choices": [{"delta": delta}]}));
        let nothing = Piece {
            has_choice: true,
            ..Piece::default()
        };
        for delta in [
            json!({"content": null, "tool_calls": null}),
            json!({}),
            json!(null),
            json!({"content": 5, "reasoning_content": {}, "tool_calls": "x"}),
        ] {
            assert_eq!(said(delta.clone()), nothing, "{delta}");
        }
        for document in [
            json!({"choices": []}),
            json!({"choices": null}),
            json!({}),
            json!([]),
            json!(null),
        ] {
            assert_eq!(piece(&document), Piece::default(), "{document}");
        }
    }

    #[test]
    fn texts_calls_and_usage_are_found_where_each_server_puts_them() {
        let document = json!({
            "choices": [{
                "message": {
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                    "reasoning": "think",
                    "tool_calls": [
                        {"id": "c1", "function": {"name": "w", "arguments": {"path": "固"}}},
                        {"index": 3, "id": "", "function": {"name": null, "arguments": null}},
                        {},
                    ],
                },
                "finish_reason": "",
                "usage": {"prompt_tokens": 7, "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": 5}},
            }],
            "usage": null,
        });
        let call = |index, id: Option<&str>, name: &str, arguments: &str| CallPiece {
            index,
            id: id.map(str::to_owned),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        assert_eq!(
            piece(&document),
            Piece {
                has_choice: true,
                content: "ab".to_owned(),
                reasoning: "think".to_owned(),
                calls: vec![
                    call(None, Some("c1"), "w", r#"{"path":"固"}"#),
                    call(Some(3), None, "", ""),
                    call(None, None, "", ""),
                ],
                finish: None,
                usage: Some(TokenUsage {
                    prompt: 7,
                    completion: 3,
                    total: 10,
                    cached: 5,
                }),
            }
        );
    }
}
