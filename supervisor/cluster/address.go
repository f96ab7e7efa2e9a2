package cluster

import (
	"cmp"
	"fmt"
	"net"
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

// CheckReached says what is wrong with where the other machines are to reach one: HOST:PORT, as SplitAddress reads it, but no address that means
// each of a machine (0.0.0.0, ::), which is one to listen at alone.
func CheckReached(address string) error {
	host, port, err := net.SplitHostPort(address)
	zoneless, _, _ := strings.Cut(host, "%")
	if ip := net.ParseIP(zoneless); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
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
