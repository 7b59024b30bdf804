//! What leader and worker say to each other, as types and rules about them: no file, socket, clock or thread.
