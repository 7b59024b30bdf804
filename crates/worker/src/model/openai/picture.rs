//! Images as they stand in a request: `image_url` parts with the bytes in a data URL.
//!
//! A conversation names its images, and their bytes lie in the agent's folder; they are read anew
//! for each request, so that none is held in memory between two. Of a long conversation the newest
//! ones are shown, and a word stands for each of the others.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use protocol::conversation::{Media, Message};
use protocol::limits::{MEDIA_BYTES_MAX, MEDIA_SHOWN_BYTES_MAX};
use serde_json::{Map, Value, json};

/// What stands for an image that is not shown.
const NOT_SHOWN: &str = "[image not shown: newer ones took its place]";
/// What stands for an image whose file is gone.
const GONE: &str = "[image not shown: its file can't be read]";

/// Puts the images of a conversation into the body of a request whose messages are those of the
/// conversation, one for one.
pub(super) fn show(body: &mut Map<String, Value>, messages: &[Message], folder: &Path) {
    let Some(Value::Array(sent)) = body.get_mut("messages") else {
        return;
    };
    let from = shown_from(messages);
    for (at, (sent, message)) in sent.iter_mut().zip(messages).enumerate() {
        if !message.media.is_empty() {
            sent["content"] = content(message, folder, at >= from);
        }
    }
}

/// From which message on images are shown: the newest ones that together have at most
/// [`MEDIA_SHOWN_BYTES_MAX`] bytes.
fn shown_from(messages: &[Message]) -> usize {
    let mut room = MEDIA_SHOWN_BYTES_MAX;
    for (at, message) in messages.iter().enumerate().rev() {
        let bytes: u64 = message.media.iter().map(|media| media.bytes).sum();
        match room.checked_sub(bytes) {
            Some(left) => room = left,
            None => return at + 1,
        }
    }
    0
}

/// The content of a message that shows images.
fn content(message: &Message, folder: &Path, shown: bool) -> Value {
    let text = message.content.as_deref().unwrap_or_default();
    let parts = message.media.iter().map(|media| match shown {
        true => part(media, folder),
        false => words(NOT_SHOWN),
    });
    std::iter::once(words(text)).chain(parts).collect()
}

fn words(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn part(media: &Media, folder: &Path) -> Value {
    match bytes_of(media, folder) {
        Ok(bytes) => {
            let url = format!("data:{};base64,{}", media.mime, base64(&bytes));
            json!({"type": "image_url", "image_url": {"url": url}})
        }
        Err(error) => {
            tracing::warn!(%error, file = media.file, "an image can't be shown");
            words(GONE)
        }
    }
}

fn bytes_of(media: &Media, folder: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(folder.join(&media.file))?
        .take(MEDIA_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// RFC 4648, section 4, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let number = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let six = (number >> (18 - 6 * place) & 0x3f) as usize;
            text.push(match place <= chunk.len() {
                true => char::from(LETTERS[six]),
                false => '=',
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_its_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
    }

    fn showing(file: &str, bytes: u64) -> Message {
        Message {
            media: vec![Media {
                file: file.to_owned(),
                mime: "image/png".to_owned(),
                bytes,
            }],
            ..Message::user("look")
        }
    }

    #[test]
    fn the_newest_images_are_shown_up_to_the_bound() {
        let third = MEDIA_SHOWN_BYTES_MAX / 3;
        let three = [
            showing("a", third),
            Message::user("x"),
            showing("b", third),
            showing("c", third),
        ];
        assert_eq!(shown_from(&three), 0);
        let mut four = three.to_vec();
        four.push(showing("d", third + 3));
        assert_eq!(shown_from(&four), 3);
        assert_eq!(shown_from(&[showing("huge", MEDIA_SHOWN_BYTES_MAX + 1)]), 1);
        assert_eq!(shown_from(&[]), 0);
    }

    #[test]
    fn an_image_is_a_part_with_its_bytes_or_a_word_that_stands_for_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.png"), "foobar").unwrap();
        let message = showing("a.png", 6);
        let text = json!({"type": "text", "text": "look"});
        let url = "data:image/png;base64,Zm9vYmFy";
        assert_eq!(
            content(&message, folder.path(), true),
            json!([text, {"type": "image_url", "image_url": {"url": url}}])
        );
        assert_eq!(
            content(&message, folder.path(), false),
            json!([text, {"type": "text", "text": NOT_SHOWN}])
        );
        assert_eq!(
            content(&showing("gone.png", 6), folder.path(), true),
            json!([text, {"type": "text", "text": GONE}])
        );
    }
}
