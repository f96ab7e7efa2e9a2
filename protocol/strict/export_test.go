package strict

// Quick is Fill in one walk; false where it leaves data to Slow.
func Quick(data []byte, v any, unknown Unknown) bool { return quick(data, v, unknown) }

// Slow is Fill in two walks.
func Slow(data []byte, v any, unknown Unknown) error { return fill(data, v, unknown) }
