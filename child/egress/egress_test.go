package egress_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"nexus.internal/child/egress"
)

func TestCheck(t *testing.T) {
	allowed := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	for _, tt := range []struct {
		address                 string
		public, private, listed bool // by the zero rule, by Private, and if all is allowed
	}{
		{"93.184.216.34", true, true, true},
		{"2606:2800:220:1::1", true, true, true},
		{"::ffff:93.184.216.34", true, true, true},
		{"64:ff9b::5db8:d822", true, true, true}, // 93.184.216.34 behind a translator

		{"127.0.0.1", false, true, true},
		{"127.8.8.8", false, true, true},
		{"::1", false, true, true},
		{"::ffff:127.0.0.1", false, true, true},
		{"::127.0.0.1", false, true, true},
		{"64:ff9b::127.0.0.1", false, true, true},
		{"2002:7f00:1::", false, true, true}, // 127.0.0.1 by 6to4
		{"0.0.0.0", false, true, true},
		{"::", false, true, true},
		{"10.0.0.1", false, true, true},
		{"172.31.255.255", false, true, true},
		{"192.168.1.1", false, true, true},
		{"100.64.0.1", false, true, true},
		{"192.0.0.8", false, true, true},
		{"192.0.2.1", false, true, true},
		{"198.18.0.1", false, true, true},
		{"224.0.0.1", false, true, true},
		{"255.255.255.255", false, true, true},
		{"fd12:3456::1", false, true, true},
		{"ff02::1", false, true, true},
		{"2001:db8::1", false, true, true},
		{"2001::1", false, true, true}, // Teredo
		{"64:ff9b:1::1", false, true, true},
		{"5f00::1", false, true, true},

		{"169.254.169.254", false, false, false},
		{"169.254.170.2", false, false, false},
		{"::ffff:169.254.169.254", false, false, false},
		{"::169.254.169.254", false, false, false},
		{"64:ff9b::169.254.169.254", false, false, false},
		{"2002:a9fe:a9fe::1", false, false, false},
		{"fe80::1", false, false, false},
		{"fe80::1%eth0", false, false, false},
		{"fd00:ec2::254", false, false, false},
		{"fd20:ce::254", false, false, false},
		{"100.100.100.200", false, false, false},
		{"168.63.129.16", false, false, false},
		{"192.0.0.192", false, false, false},
	} {
		addr := netip.MustParseAddr(tt.address)
		for name, is := range map[string]struct {
			rule egress.Rule
			want bool
		}{
			"public": {egress.Rule{}, tt.public}, "private": {egress.Rule{Private: true}, tt.private}, "allowed": {egress.Rule{Allowed: allowed}, tt.listed},
		} {
			if err := is.rule.Check(addr); (err == nil) != is.want {
				t.Errorf("%s by %s: %v", tt.address, name, err)
			}
		}
	}
}

func TestCheckHost(t *testing.T) {
	for host, want := range map[string]bool{
		"example.com": true, "127.0.0.1": true, "169.254.169.254": false, "metadata.google.internal": false, "METADATA.google.internal.": false, "fd00:ec2::254": false,
	} {
		if err := (egress.Rule{Private: true}).CheckHost(host); (err == nil) != want {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// The dialer looks at the address that it is about to connect to, whatever its name.
func TestDialer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", "::ffff:127.0.0.1"} {
		_, err := egress.Rule{}.Dialer().DialContext(t.Context(), "tcp", net.JoinHostPort(host, port))
		if _, ok := errors.AsType[*egress.RefusedError](err); !ok {
			t.Errorf("%s: got %v, want it refused", host, err)
		}
	}
	for _, rule := range []egress.Rule{{Private: true}, {Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}} {
		c, err := rule.Dialer().DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if _, err := (egress.Rule{Private: true}).Dialer().DialContext(t.Context(), "unix", "/nowhere"); err == nil {
		t.Error("a socket of this machine is no address")
	}
}
