//go:build !unix

package audit

import "os"

const openFlags = os.O_RDWR | os.O_CREATE | os.O_APPEND
