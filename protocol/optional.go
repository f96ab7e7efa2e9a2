package protocol

// Value returns what p points to; the zero value where p is nil, as a member that was
// not given is.
func Value[T any](p *T) T {
	var zero T
	return ValueOr(p, zero)
}

// ValueOr returns what p points to, or otherwise where p is nil.
func ValueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
