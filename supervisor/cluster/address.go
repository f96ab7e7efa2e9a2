package cluster

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// maxMachines is how many addresses may be joined. Raft among more costs more than they bring.
const maxMachines = 100

// SplitAddress reads HOST:PORT.
func SplitAddress(text string) (host string, port int, err error) {
	host, number, err := net.SplitHostPort(text)
	if err == nil {
		port, err = strconv.Atoi(number)
	}
	if err != nil || host == "" || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("the address of a machine is HOST:PORT: %.80q", text)
	}
	return host, port, nil
}

// noHost are names that no host has: a number stands for an address in some programs alone, as 0 for 0.0.0.0.
var noHost = regexp.MustCompile(`^(0[xX][0-9a-fA-F]+|[0-9.]+|-.*|.*[*?\s].*)$`)

// CheckReached says what is wrong with where the other machines are to reach one: HOST:PORT, as SplitAddress reads it, but no address that means
// each of a machine (0.0.0.0, ::), which is one to listen at alone, or many (224.0.0.1), and no name that is none of a host.
func CheckReached(address string) error {
	host, port, err := net.SplitHostPort(address)
	zoneless, _, _ := strings.Cut(host, "%")
	ip := net.ParseIP(zoneless)
	many := ip != nil && (ip.IsUnspecified() || ip.IsMulticast() || ip.Equal(net.IPv4bcast))
	if err == nil && (host == "" || many || ip == nil && noHost.MatchString(host)) {
		return fmt.Errorf("no other machine reaches one at %.80q: name the address, or the host, by which they do, as in 10.0.0.1:%s", address, cmp.Or(port, "8766"))
	}
	_, _, err = SplitAddress(address)
	return err
}

// OnLoopback reports whether nobody but this machine reaches the address: a name may mean any.
func OnLoopback(address string) bool {
	host, _, err := SplitAddress(address)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

// CheckJoin says what is wrong with the addresses of all machines of a cluster.
func CheckJoin(join []string) error {
	if len(join) < 2 || len(join) > maxMachines {
		return fmt.Errorf("a cluster joins 2 to %d machines, this one among them; here are %d", maxMachines, len(join))
	}
	for _, address := range join {
		if err := CheckReached(address); err != nil {
			return err
		}
	}
	return nil
}
