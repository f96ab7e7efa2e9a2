// Package greeting is what nexus serve says on stdout once it listens, for those who
// started it.
//
//	err := greeting.Write(os.Stdout, "127.0.0.1:8765", "", keyFile)
//	url, keyFile, err := greeting.Read(stdout) // http://127.0.0.1:8765
//
// See cmd/OPERATIONS.md §2.
package greeting

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
)

const (
	address = "nexus listening on "
	remote  = "for other machines: "
	key     = "key file: "
)

// Write says where a server listens, as HOST:PORT, at which URL it does so for other machines ("" for nowhere), and which file has its
// key, a path as it is, or as a JSON string. It is called once, when all is true, and nothing else is ever written to the server's stdout.
func Write(w io.Writer, hostPort, remoteURL, keyFile string) error {
	if remoteURL != "" {
		remoteURL = remote + remoteURL + "\n"
	}
	_, err := fmt.Fprintf(w, "%shttp://%s\n%s%s%s\n", address, hostPort, remoteURL, key, keyFile)
	return err
}

// Read reads what Write wrote, up to its end. Both are "" where r ends before that; the
// error is that of reading.
func Read(r io.Reader) (url, keyFile string, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), address); ok {
			url = text
		}
		if text, ok := strings.CutPrefix(lines.Text(), key); ok && url != "" {
			if strings.HasPrefix(text, `"`) {
				err = json.Unmarshal([]byte(text), &text)
			}
			return url, text, err
		}
	}
	return "", "", lines.Err()
}
