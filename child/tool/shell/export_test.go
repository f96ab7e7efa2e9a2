package shell

// Collect gives chunks to a collector, and what it shows of them and has told.
func Collect(most int, dir string, chunks [][]byte) (text, told string) {
	c := newCollector(most, dir, func(s string) { told += s })
	defer c.close()
	for _, b := range chunks {
		_, _ = c.Write(b)
	}
	return c.text(), told
}
