//go:build !unix

package auth

import "os"

const openFlags = os.O_RDONLY
