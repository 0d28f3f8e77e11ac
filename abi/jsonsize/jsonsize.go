// Package jsonsize says how deep and how wide a JSON text is before it is decoded:
// what is decoded from two bytes can take some hundred, and a decoder that recurses
// has a stack that ends.
package jsonsize

// Size is how large a JSON text is once it is decoded.
type Size struct {
	// Depth is how many objects and arrays stand in one another at most, 0 of a text
	// that has neither. Values is how many objects, arrays, and members and elements
	// after the first of each there are: about as many as are decoded.
	Depth, Values int
}

// Of reads a text once, from its beginning to its end, and keeps nothing of it. The
// text need not be valid: up to where a decoder finds the fault, and so as far as it
// decodes anything, the Size is right.
func Of(text []byte) Size {
	var s Size
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			s.Depth = max(s.Depth, depth)
			s.Values++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			s.Values++
		}
	}
	return s
}
