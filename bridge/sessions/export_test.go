package sessions

// Looked is at how many files of named sessions a list looked so far.
func (c *Catalogue) Looked() int { return c.named.looked }

// Remembered is how many files are known after more than fit were read, and how many fit.
func Remembered() (known, fit int) {
	all := map[int]bool{}
	for i := range maxReadings + 10 {
		remember(all, i, true)
	}
	return len(all), maxReadings
}
