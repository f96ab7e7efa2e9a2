package limit

// Names gives a test how many names are kept.
func (r *Rate) Names() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.buckets)
}
