//! `read_mediafile`: shows an image to a model that sees.
//!
//! The bytes are copied into the agent's folder, so that every later request shows the same image
//! whatever becomes of the file, and the journal names the copy instead of holding megabytes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use protocol::conversation::Media;
use protocol::error::{ErrorCode, ToolError};
use protocol::job::MEDIA_DIR;
use protocol::limits::MEDIA_BYTES_MAX;
use protocol::text::{ActionKind, Prompts};
use protocol::tool::parse_text;
use protocol::tool::worker::{READ_MEDIAFILE, ReadMediafileParams};
use serde_json::json;

use super::failure::{Doing, io_failure};
use super::filetype::binary_kind;
use super::paths::{place_below, resolve};
use super::{
    Tally, Tool, ToolContext, ToolFuture, ToolOutput, ToolResult, blocking, limits, save, subject,
};

/// Types that models take, by their first bytes: where those stand, and the file's ending.
const TYPES: &[(usize, &[u8], &str, &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "image/png", "png"),
    (0, b"\xff\xd8\xff", "image/jpeg", "jpg"),
    (0, b"GIF87a", "image/gif", "gif"),
    (0, b"GIF89a", "image/gif", "gif"),
    (8, b"WEBPVP8", "image/webp", "webp"),
];

/// The tool.
#[derive(Debug)]
pub(crate) struct ReadMediafile;

impl Tool for ReadMediafile {
    fn name(&self) -> &'static str {
        READ_MEDIAFILE
    }

    fn action(&self, arguments: &str, prompts: &Prompts) -> String {
        prompts.action(ActionKind::Reading, &subject::of(arguments, "path"))
    }

    fn call<'a>(
        &'a self,
        context: &'a ToolContext,
        arguments: &'a str,
        within: Duration,
    ) -> ToolFuture<'a> {
        Box::pin(run(context, arguments, within))
    }
}

async fn run(context: &ToolContext, arguments: &str, within: Duration) -> ToolResult {
    let params: ReadMediafileParams = parse_text(arguments)?;
    if !context.vision {
        return Err(ToolError::new(
            ErrorCode::NotAvailable,
            "the model of this agent sees no images",
        )
        .hint(
            "use a program that tells what is in it; whoever runs this agent can set `vision = \
             true` for a model that sees",
        ));
    }
    let within = within.min(Duration::from_secs(limits::READ_SECONDS_MAX));
    let workspace = context.workspace.clone();
    let agent_dir = context.agent_dir.clone();
    let media = blocking::read(within, "reading the image", move || {
        take(&workspace, &agent_dir, &params.path)
    })
    .await?;
    Ok(ToolOutput {
        value: json!({
            "success": true,
            "file": media.file,
            "mime": media.mime,
            "bytes": media.bytes,
            "message": context.prompts.media_follows(),
        }),
        tally: Tally {
            files_read: 1,
            ..Tally::default()
        },
    })
}

/// Copies an image into the agent's folder.
fn take(workspace: &Path, agent_dir: &Path, path: &str) -> Result<Media, ToolError> {
    let place = resolve(workspace, path, Doing::Read)?;
    let (file, stat) = place.open_file()?;
    let shown = place.shown();
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    if size > MEDIA_BYTES_MAX {
        return Err(ToolError::new(
            ErrorCode::TooLarge,
            format!("`{shown}` has {size} bytes; the most is {MEDIA_BYTES_MAX}"),
        )
        .hint("make a smaller copy with run_command, and read that"));
    }
    let mut bytes = Vec::new();
    file.take(MEDIA_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| io_failure(Doing::Read, &shown, &error))?;
    let Some((mime, ending)) = type_of(&bytes) else {
        let what = binary_kind(&bytes).unwrap_or("text");
        return Err(ToolError::new(
            ErrorCode::NotAvailable,
            format!("`{shown}` is no image that can be shown: it is {what}"),
        )
        .hint("PNG, JPEG, GIF and WebP can be shown; convert it, or read text with read_file"));
    };
    // One image that is read twice is one file, and the second call has the result of the first.
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let name = format!("{:016x}.{ending}", hasher.finish());
    // False where it is there already, with these bytes.
    save::create(place_below(agent_dir, &[MEDIA_DIR, &name])?, &bytes)?;
    Ok(Media {
        file: format!("{MEDIA_DIR}/{name}"),
        mime: mime.to_owned(),
        bytes: bytes.len() as u64,
    })
}

fn type_of(bytes: &[u8]) -> Option<(&'static str, &'static str)> {
    TYPES
        .iter()
        .find(|(at, signature, ..)| {
            let start = bytes.get(*at..);
            start.is_some_and(|start| start.starts_with(signature))
        })
        .map(|(_, _, mime, ending)| (*mime, *ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Ground;

    const PLENTY: Duration = Duration::from_secs(60);
    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";

    fn ground() -> Ground {
        let mut ground = Ground::new();
        ground.context.vision = true;
        ground
    }

    async fn read(ground: &Ground, path: &str) -> ToolResult {
        let arguments = json!({"path": path}).to_string();
        ReadMediafile
            .call(&ground.context, &arguments, PLENTY)
            .await
    }

    #[tokio::test]
    async fn an_image_is_known_by_its_content_and_copied_once() {
        let ground = ground();
        // Its name says something else.
        ground.file("picture.jpg", PNG);
        let first = read(&ground, "picture.jpg").await.unwrap();
        let media: Media = serde_json::from_value(first.value.clone()).unwrap();
        assert_eq!((media.mime.as_str(), media.bytes), ("image/png", 16));
        assert!(media.file.ends_with(".png"), "{media:?}");
        let copy = format!("sub_agent_results/agent_1/.subagent/{}", media.file);
        assert_eq!(ground.read(&copy), PNG);
        ground.file("other.png", PNG);
        assert_eq!(read(&ground, "other.png").await.unwrap(), first);
        let folder = "sub_agent_results/agent_1/.subagent/media";
        assert_eq!(ground.names(folder).len(), 1);
    }

    #[tokio::test]
    async fn what_can_not_be_shown_is_refused_in_words() {
        let ground = ground();
        ground.file("text.png", b"hello");
        ground.file("d.pdf", b"%PDF-1.7\n\xff\0");
        let most = usize::try_from(MEDIA_BYTES_MAX).unwrap();
        ground.file("huge.png", &[PNG, &vec![0; most - PNG.len() + 1]].concat());
        ground.file("most.png", &[PNG, &vec![0; most - PNG.len()]].concat());
        for (path, code, words) in [
            ("text.png", ErrorCode::NotAvailable, "it is text"),
            ("d.pdf", ErrorCode::NotAvailable, "PDF document"),
            ("huge.png", ErrorCode::TooLarge, "the most is"),
            ("gone.png", ErrorCode::NotFound, "gone.png"),
            ("../x.png", ErrorCode::OutsideWorkspace, ""),
        ] {
            let error = read(&ground, path).await.unwrap_err();
            assert_eq!(error.code, code, "{path}: {error}");
            assert!(error.message.contains(words), "{path}: {error}");
        }
        assert!(read(&ground, "most.png").await.is_ok());
        let blind = Ground::new();
        blind.file("a.png", PNG);
        let error = read(&blind, "a.png").await.unwrap_err();
        assert!(error.hint.contains("vision = true"), "{error:?}");
    }
}
