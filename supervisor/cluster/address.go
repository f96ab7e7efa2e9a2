package cluster

import (
	"fmt"
	"net"
	"strconv"
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
		if _, _, err := SplitAddress(address); err != nil {
			return err
		}
	}
	return nil
}
