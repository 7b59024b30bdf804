//! One agent: model client, tools, conversation log; alone in a terminal or under a leader.
