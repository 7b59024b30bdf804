//! Keeps the manifest true while the batch runs: written anew when something has changed, not too
//! often, and once more at the end.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use protocol::error::ToolError;
use protocol::manifest::Manifest;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::store::manifest::ManifestFile;

/// From the end of one writing to the next, in milliseconds. A kill between the two costs nothing:
/// the event log holds what the manifest does not.
const PAUSE_MS: u64 = 500;

/// The manifest's file, if one is kept.
#[derive(Debug)]
pub struct Keeping {
    file: Option<Arc<ManifestFile>>,
    changed: bool,
    writing: Option<JoinHandle<Result<(), ToolError>>>,
    pause: Option<Pin<Box<Sleep>>>,
    told: bool,
}

impl Keeping {
    /// Keeps this file, or none.
    pub fn new(file: Option<ManifestFile>) -> Self {
        Keeping {
            file: file.map(Arc::new),
            changed: false,
            writing: None,
            pause: None,
            told: false,
        }
    }

    /// Something has changed.
    pub fn touch(&mut self) {
        self.changed = self.file.is_some();
    }

    /// Completes when the manifest should be written, and gives the failure of the writing before,
    /// the first time. Cancel-safe.
    pub async fn due(&mut self) -> Option<ToolError> {
        loop {
            if let Some(writing) = &mut self.writing {
                let written = writing.await;
                self.writing = None;
                self.pause = Some(Box::pin(tokio::time::sleep(Duration::from_millis(
                    PAUSE_MS,
                ))));
                if let Ok(Err(error)) = written {
                    // What could not be written is still to be.
                    self.changed = true;
                    if !std::mem::replace(&mut self.told, true) {
                        return Some(error);
                    }
                }
                continue;
            }
            if !self.changed {
                pending::<()>().await;
            }
            if let Some(pause) = &mut self.pause {
                pause.await;
                self.pause = None;
            }
            return None;
        }
    }

    /// Writes it beside the loop.
    pub fn begin(&mut self, manifest: &Manifest) {
        let Some(file) = self
            .file
            .clone()
            .filter(|_| self.changed && self.writing.is_none())
        else {
            return;
        };
        self.changed = false;
        let manifest = manifest.clone();
        self.writing = Some(tokio::task::spawn_blocking(move || file.write(&manifest)));
    }

    /// Writes it for good, whatever was under way.
    ///
    /// # Errors
    /// When it could not be written.
    pub async fn finish(mut self, manifest: &Manifest) -> Result<(), ToolError> {
        if let Some(writing) = self.writing.take() {
            // One writer: the last writing comes after the one before, whose outcome it replaces.
            drop(writing.await);
        }
        match self.file {
            Some(file) => file.write(manifest),
            None => Ok(()),
        }
    }
}
