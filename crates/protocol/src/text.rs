//! Texts that models read, in two languages, and how values are put into them.
