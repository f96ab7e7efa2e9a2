//go:build !unix

package cli

import "os"

func awaitNoReader(_, _ *os.File) bool { return false }
