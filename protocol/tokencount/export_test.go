package tokencount

// Held is how many bytes an Answer holds.
func (m *Answer) Held() int { return cap(m.scanner.kept) }

// MaxUsage bounds what an Answer holds, in bytes.
const MaxUsage = maxUsage
