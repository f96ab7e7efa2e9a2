package toolenv

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"nexus.internal/child/egress"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/textcut"
)

// hintTail is how much of the end of a result tells why a command failed, in bytes.
const hintTail = 16 << 10

// What programs say that find no network: C's resolver, curl, Go, Node, Python, and what the
// kernel calls it. A socket that is refused tells of permissions.
var noNetwork = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)network is unreachable|could not resolve|couldn't resolve|name resolution|name or service not known|` +
		`unknown host|getaddrinfo|ENETUNREACH|EAI_AGAIN|ENOTFOUND|NewConnectionError|dial (tcp|udp): lookup|lookup \S+ on |socket: (operation not permitted|permission denied)|` +
		`(connect|socket|bind|listen)\b.{0,40}(EACCES|permission denied)|proxyconnect|CONNECT tunnel failed|Tunnel connection failed|tunneling socket`)
})

// What programs say that may not touch a file, and the paths that they name.
var (
	noAccess = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)permission denied|read-only file system|operation not permitted|\bEACCES\b|\bEROFS\b|\bEPERM\b`)
	})
	somePaths = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile("(?:^|[\\s'\"`(=:\u2018])(/[^\\s'\"`:,;()\u2019]+|\\.\\./[^\\s'\"`:,;()\u2019]*)")
	})
)

// hint is what a confined program's failure has to do with its walls, as a last line of its
// result; "" if nothing tells that they are the likely cause. Hosts that were refused are told
// in any case.
func hint(result tool.Result, r sandbox.Rules) string {
	text := result.Text
	if r.Confinement == sandbox.Unconfined || strings.Contains(text, "[this was not confined") {
		return ""
	}
	if gate, ok := r.Gate.(*egress.Gate); ok {
		if refused := gate.Refused(); len(refused) > 0 {
			return "\n[the walls of this agent: " + strings.Join(refused, ", ") + " was not reached; " + told(r) + " Use these, or say which host you need and what for]"
		}
	}
	if !result.IsError {
		return ""
	}
	text = string(textcut.Tail([]byte(text), hintTail))
	var what string
	switch {
	case !r.Network && noNetwork().MatchString(text):
		what = "Use what is there already"
	case deniedOutside(text, r):
		what = "Use $TMPDIR or the working directory for what is written, and copies within it of what is read"
	default:
		return ""
	}
	return "\n[likely the walls of this agent: " + told(r) + " " + what + ", or say what you need and what for; another try will fail as well]"
}

// hints are those of failed jobs.
type hints struct{}

func (hints) Hint(output string, r sandbox.Rules) string {
	return hint(tool.Result{Text: output, IsError: true}, r)
}

// deniedOutside reports whether a line tells that access to a path was refused which lies
// where the program may not write or, if it reads not everywhere, may not read.
func deniedOutside(text string, r sandbox.Rules) bool {
	own := slices.Clone(r.ReadWrite)
	for _, dir := range []string{r.Temp, r.Home} {
		if dir != "" {
			own = append(own, dir)
		}
	}
	for line := range strings.Lines(text) {
		if !noAccess().MatchString(line) {
			continue
		}
		for _, match := range somePaths().FindAllStringSubmatch(line, -1) {
			if path := match[1]; strings.HasPrefix(path, "..") || !rights.Contains(own, path) {
				return true
			}
		}
	}
	return false
}
