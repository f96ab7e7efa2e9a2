// Package egress says which addresses an agent's own connections may go to, and lets programs
// out to named hosts: a Gate is the one way out of a program that the kernel holds
// (child/sandbox).
//
//	dialer := egress.Rule{}.Dialer()             // the public internet alone
//	dialer := egress.Rule{Private: true}.Dialer() // all but addresses that no server of ours has
//	_, err := dialer.DialContext(ctx, "tcp", "example.com:443")
//	rules.Gate = egress.NewGate(egress.GateOptions{Hosts: []string{"proxy.golang.org"}})
//
// An address is checked when the system is about to connect to it, after its name was looked
// up: whatever a name stands for, and whatever it stands for a moment later, the connection
// goes to the address that was checked or to none. Addresses of a cloud's metadata, which give
// a machine's credentials to whoever asks, are never reached. All of it is safe for concurrent
// use; a Gate remembers what it refused, and nothing else has state. The contract is
// child/AGENT.md §4.4, §4.5 and §4.9.
package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

// dialTimeout bounds a connection to all the addresses of a name.
const dialTimeout = 10 * time.Second

// Rule is where connections may go. The zero value is the public internet.
type Rule struct {
	// Private also lets them go to this machine and to private networks.
	Private bool
	// Allowed are reached though they are not public.
	Allowed []netip.Prefix
}

// RefusedError is an address that is not connected to.
type RefusedError struct {
	Address string // or the name that stands for it
	What    string // the kind of address that it is
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is %s, which is not reached", e.Address, e.What)
}

// block is a range of addresses that are not public.
type block struct {
	prefix netip.Prefix
	what   string
}

func blocks(pairs ...string) (all []block) {
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, block{netip.MustParsePrefix(pairs[i]), pairs[i+1]})
	}
	return all
}

const (
	metadata    = "an address of a cloud's metadata"
	linkLocal   = "a link-local address"
	private     = "an address of a private network"
	reserved    = "a reserved address"
	examples    = "an address for examples"
	multicast   = "a multicast address"
	thisMachine = "an address of this machine"
)

// never are reached by no rule: the addresses at which clouds give a machine's credentials away
// (AWS, Azure, Google, Alibaba, Oracle), and the networks that they are of.
func never() []block {
	return blocks(
		"169.254.0.0/16", linkLocal+" (a cloud's metadata)", "fe80::/10", linkLocal,
		"fd00:ec2::/32", metadata, "fd20:ce::/32", metadata,
		"100.100.100.200/32", metadata, "168.63.129.16/32", metadata, "192.0.0.192/32", metadata,
	)
}

// notPublic are those that IANA's registries of special-purpose addresses (RFC 6890) have, and
// multicast.
func notPublic() []block {
	return blocks(
		"0.0.0.0/8", thisMachine, "127.0.0.0/8", "a loopback address", "10.0.0.0/8", private, "172.16.0.0/12", private, "192.168.0.0/16", private,
		"100.64.0.0/10", "an address of a provider's own network", "192.0.0.0/24", reserved, "192.88.99.0/24", reserved, "198.18.0.0/15", reserved,
		"192.0.2.0/24", examples, "198.51.100.0/24", examples, "203.0.113.0/24", examples, "224.0.0.0/4", multicast, "240.0.0.0/4", reserved,
		"::/128", thisMachine, "::1/128", "a loopback address", "fc00::/7", private, "ff00::/8", multicast,
		"2001::/23", reserved, "2001:db8::/32", examples, "2002::/16", reserved, "3fff::/20", examples,
	)
}

// globalIPv6 is what addresses of the internet are taken from; translated stands for an IPv4
// address where a network has IPv6 alone (RFC 6052).
const (
	globalIPv6 = "2000::/3"
	translated = "64:ff9b::/96"
)

// Check says why there is no connection to an address. The error is a *RefusedError.
func (r Rule) Check(addr netip.Addr) error {
	shown := addr.String()
	addr = addr.Unmap().WithZone("")
	inner := embedded(addr)
	if b := find(never(), addr, inner); b != nil {
		return &RefusedError{shown, b.what}
	}
	if netip.MustParsePrefix(translated).Contains(addr) {
		addr = inner // where the connection would lead
	}
	if r.Private || slices.ContainsFunc(r.Allowed, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return nil
	}
	if b := find(notPublic(), addr); b != nil {
		return &RefusedError{shown, b.what}
	}
	if addr.Is6() && !netip.MustParsePrefix(globalIPv6).Contains(addr) {
		return &RefusedError{shown, reserved}
	}
	return nil
}

func find(all []block, addrs ...netip.Addr) *block {
	for _, addr := range addrs {
		if i := slices.IndexFunc(all, func(b block) bool { return b.prefix.Contains(addr) }); i >= 0 {
			return &all[i]
		}
	}
	return nil
}

// embedded is the IPv4 address that an IPv6 address stands for: where a network translates, in
// 6to4, and in the form that has only zeros beside it. It is not valid if there is none.
func embedded(addr netip.Addr) netip.Addr {
	if !addr.Is6() {
		return netip.Addr{}
	}
	b := addr.As16()
	switch {
	case netip.MustParsePrefix(translated).Contains(addr), netip.MustParsePrefix("::/96").Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return netip.Addr{}
}

// metadataNames are what clouds call the addresses of their metadata.
var metadataNames = []string{"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}

// CheckHost is Check of the host of a URL as far as its text tells, for connections that a
// proxy makes.
func (r Rule) CheckHost(host string) error {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if slices.Contains(metadataNames, host) {
		return &RefusedError{host, metadata}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return r.Check(addr)
	}
	return nil
}

// Dialer connects only where the rule lets it. Its errors wrap a *RefusedError.
func (r Rule) Dialer() *net.Dialer {
	return &net.Dialer{Timeout: dialTimeout, ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return &RefusedError{address, "no address of the internet"}
		}
		return r.Check(at.Addr())
	}}
}
