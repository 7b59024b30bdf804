//! Chat completions, in the dialects of the many servers that speak them.

mod assemble;
mod chat;
mod picture;
mod piece;
mod request;

pub use chat::OpenAi;
