//go:build !(freebsd && riscv64)

package sessionlog

import _ "modernc.org/sqlite" // the driver; there is none for FreeBSD on riscv64
