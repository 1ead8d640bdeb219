//! Byte-exact edits of marked values.
