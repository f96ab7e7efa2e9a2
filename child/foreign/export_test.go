package foreign

import "time"

// SetWriteTimeout changes how long a program may leave its stdin unread, and returns what undoes that.
func SetWriteTimeout(d time.Duration) func() {
	before := writeTimeout
	writeTimeout = d
	return func() { writeTimeout = before }
}
