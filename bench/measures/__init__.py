"""One small function per measure; its docstring says what users feel by it."""
