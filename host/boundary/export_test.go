package boundary

// NeutraliseAll is the way of Wrap without the short cut for texts that need
// nothing, which must never make a difference.
func NeutraliseAll(raw string) (string, Report) { return neutraliseAll(raw) }

// Harmless reports whether the short cut is taken.
func Harmless(text string) bool { return harmless(text) }

// FoldedRune and FoldRune are what the short cut reads of a code point, with its
// tables and without.
func FoldedRune(r rune) (string, bool) { return foldedRune(r) }
func FoldRune(r rune) (string, bool)   { return foldRune(r) }
