"""A language server that edits by copying: code actions, progress, versioned edits. Knows no tensor."""
