//! What a model is told of the result of a call.

use serde_json::Value;

/// The text of a result: its text parts, words that stand for what is no text, or its structured
/// content where it has no part at all.
pub(super) fn text_of(result: &Value) -> String {
    let parts = result["content"].as_array().map_or(&[][..], Vec::as_slice);
    let texts: Vec<String> = parts.iter().map(part).collect();
    let structured = &result["structuredContent"];
    match (texts.is_empty(), structured.is_null()) {
        (false, _) => texts.join("\n"),
        (true, false) => structured.to_string(),
        (true, true) => "(the tool gave no content)".to_owned(),
    }
}

fn part(part: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    match part["type"].as_str().unwrap_or("") {
        "text" => part["text"].as_str().unwrap_or_default().to_owned(),
        kind @ ("image" | "audio") => {
            let size = part["data"].as_str().map_or(0, |data| data.len() / 4 * 3);
            format!(
                "[{kind} {}, {size} bytes, not shown]",
                word(&part["mimeType"])
            )
        }
        "resource" => {
            let resource = &part["resource"];
            match resource["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[resource {}, not shown]", word(&resource["uri"])),
            }
        }
        "resource_link" => format!("[resource {}]", word(&part["uri"])),
        kind => format!("[content of the kind `{kind}`, not shown]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_kind_of_content_is_told() {
        for (result, wanted) in [
            (
                json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
                "a\nb",
            ),
            (
                json!({"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]}),
                "[image image/png, 3 bytes, not shown]",
            ),
            (
                json!({"content": [{"type": "resource", "resource": {"text": "t"}}]}),
                "t",
            ),
            (
                json!({"content": [{"type": "resource", "resource": {"uri": "u", "blob": ""}}]}),
                "[resource u, not shown]",
            ),
            (
                json!({"content": [{"type": "resource_link", "uri": "u"}]}),
                "[resource u]",
            ),
            (
                json!({"content": [{"type": "new"}]}),
                "[content of the kind `new`, not shown]",
            ),
            (
                json!({"content": [], "structuredContent": {"n": 1}}),
                "{\"n\":1}",
            ),
            (
                json!({"content": [{"type": "text", "text": "a"}], "structuredContent": {"n": 1}}),
                "a",
            ),
            (json!({}), "(the tool gave no content)"),
            (json!(3), "(the tool gave no content)"),
        ] {
            assert_eq!(text_of(&result), wanted, "{result}");
        }
    }
}
