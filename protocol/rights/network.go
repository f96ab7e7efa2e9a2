package rights

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// Host is one entry of [protocol.Permissions].Network: where programs may connect to.
type Host struct {
	Name string // in lower case, or an address; without the "*" of Below
	Port uint16 // 0 is 80 and 443
	// Below says that the names below Name are meant, and not Name itself: "*.example.com".
	Below bool
	// Addr is the address that the entry names, not valid if it names a host.
	Addr netip.Addr
}

// ParseHost reads an entry: a name, an address, or "*." and a domain, and ":" and a port. An
// IPv6 address with a port is in brackets.
func ParseHost(text string) (Host, error) {
	var h Host
	name := text
	if at := strings.LastIndexByte(text, ':'); at >= 0 && (strings.IndexByte(text, ':') == at || strings.HasPrefix(text, "[") && text[at-1] == ']') {
		name = text[:at]
		n, err := strconv.ParseUint(text[at+1:], 10, 16)
		if err != nil || n == 0 {
			return h, notHost(text)
		}
		h.Port = uint16(n)
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		name = strings.TrimSuffix(inner, "]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if addr, err := netip.ParseAddr(name); err == nil && addr.Zone() == "" {
		h.Addr = addr.Unmap()
		h.Name = h.Addr.String()
		return h, nil
	}
	h.Name, h.Below = strings.CutPrefix(name, "*.")
	if !isHostName(h.Name) {
		return h, notHost(text)
	}
	return h, nil
}

func notHost(text string) error {
	return fmt.Errorf("is %.300q, want a host as example.com, *.example.com, example.com:8080 or 10.1.2.3", text)
}

// isHostName reports whether a text can be the name of a host (RFC 1123), or has underscores beside.
func isHostName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.ContainsFunc(label, func(r rune) bool {
				return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_'
			}) {
			return false
		}
	}
	return true
}

// String is the entry as ParseHost reads it.
func (h Host) String() string {
	name := h.Name
	if h.Below {
		name = "*." + name
	}
	if h.Port == 0 {
		return name
	}
	if h.Addr.Is6() {
		name = "[" + name + "]"
	}
	return name + ":" + strconv.Itoa(int(h.Port))
}

// Covers reports whether a connection to the named host (in lower case, or an address) and
// port is meant.
func (h Host) Covers(name string, port uint16) bool {
	if h.Port != port && (h.Port != 0 || port != 80 && port != 443) {
		return false
	}
	if h.Below {
		return strings.HasSuffix(name, "."+h.Name)
	}
	return name == h.Name
}

// NamesHost reports whether one of the entries covers a host, as an [protocol.Allowance] has it: with its port
// but for that of https.
func NamesHost(entries []string, host string) bool {
	asked, err := ParseHost(host)
	return err == nil && slices.ContainsFunc(entries, func(text string) bool {
		h, err := ParseHost(text)
		return err == nil && h.Covers(asked.Name, cmp.Or(asked.Port, 443))
	})
}

// HostOf names the host of a page of http or https as questions and a [protocol.Allowance] do: in lower case, with its port but for that of https.
func HostOf(at *url.URL) string {
	host := strings.TrimSuffix(strings.ToLower(at.Host), ":") // a port may be empty
	switch {
	case at.Scheme == "https":
		return strings.TrimSuffix(host, ":443")
	case at.Port() == "":
		return host + ":80"
	default:
		return host
	}
}

// covers reports whether all that o means is meant.
func (h Host) covers(o Host) bool {
	if h.Port != 0 && o.Port != h.Port || h.Port == 0 && o.Port != 0 && o.Port != 80 && o.Port != 443 {
		return false
	}
	if h.Below {
		return strings.HasSuffix(o.Name, "."+h.Name) || o.Below && o.Name == h.Name
	}
	return !o.Below && o.Name == h.Name
}

// hosts cleans a list of hosts. It stays nil if it was, and empty if it was.
func hosts(member string, list []string) ([]string, error) {
	cleaned, err := names(member, list)
	for i, text := range cleaned {
		h, err := ParseHost(text)
		if err != nil {
			return nil, &strict.Error{Path: fmt.Sprintf("%s[%d]", member, i), Problem: err.Error()}
		}
		cleaned[i] = h.String()
	}
	return Sorted(cleaned), err
}

// reaches says which hosts programs reach under p: all, or those of the list.
func reaches(p protocol.Permissions) (list []string, all bool) {
	return p.Network, p.Network == nil && p.Preset != Sandboxed
}

// missingHosts are those of the list that bound does not reach.
func missingHosts(list []string, bound protocol.Permissions) (over []string) {
	most, all := reaches(bound)
	if all {
		return nil
	}
	for _, text := range list {
		h, err := ParseHost(text)
		covered := func(other string) bool {
			o, failed := ParseHost(other)
			return failed == nil && o.covers(h)
		}
		if err != nil || !slices.ContainsFunc(most, covered) {
			over = append(over, text)
		}
	}
	return over
}

// networkTools are those by which a model reaches hosts: its programs, jobs among them, and pages.
var networkTools = []string{"shell", "web_fetch"}

// skipsQuestions reports whether p reaches its hosts without asking while bound has a person
// decide on each: sandboxed runs programs unasked, as the kernel keeps them in, and a network
// leads out.
func skipsQuestions(p, bound protocol.Permissions) bool {
	return p.Preset == Sandboxed && len(p.Network) > 0 && bound.Preset == Trusted &&
		slices.ContainsFunc(networkTools, func(tool string) bool {
			return !denies(p, tool) && p.Tools[tool].Mode != ModeAsk && bound.Tools[tool].Mode != ModeAllow
		})
}

// unruled is p once nothing is disabled and no tool has a rule: its hosts stay then.
func unruled(p protocol.Permissions) protocol.Permissions {
	p.DisabledTools, p.Tools = nil, nil
	return p
}

// intersectNetworks is the network of what neither a nor b forbids.
func intersectNetworks(a, b protocol.Permissions) []string {
	none := func(p protocol.Permissions) bool { return p.Network == nil && p.Preset == Sandboxed }
	switch {
	case none(a) || none(b), // so both together are sandboxed, too
		skipsQuestions(unruled(a), b), skipsQuestions(unruled(b), a):
		return nil
	case a.Network == nil:
		return slices.Clone(b.Network)
	case b.Network == nil:
		return slices.Clone(a.Network)
	}
	both := []string{}
	for _, one := range []struct {
		list  []string
		bound protocol.Permissions
	}{{a.Network, b}, {b.Network, a}} {
		over := missingHosts(one.list, one.bound)
		for _, text := range one.list {
			if !slices.Contains(over, text) {
				both = append(both, text)
			}
		}
	}
	return Sorted(both)
}

// beyondNetwork is Beyond for the network.
func beyondNetwork(p, bound protocol.Permissions) (over []string) {
	if p.Network == nil && bound.Network == nil {
		return nil // it is as the presets have it
	}
	list, all := reaches(p)
	if _, most := reaches(bound); all && !most {
		return []string{"all of the network"}
	}
	for _, text := range missingHosts(list, bound) {
		over = append(over, "the network of "+text)
	}
	if skipsQuestions(p, bound) {
		for _, text := range list {
			over = append(over, "the network of "+text+" without asking")
		}
	}
	if list != nil && bound.Network == nil && bound.Preset == Sandboxed && over == nil {
		over = append(over, "a network of its own")
	}
	return over
}
