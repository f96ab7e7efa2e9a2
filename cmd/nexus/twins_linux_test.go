package main_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// A second server with the files of a machine, at another address, is told of by all: by the first one in its log, and by each in what list_nodes says.
func TestClusterTwins(t *testing.T) {
	t.Parallel()
	addresses := clusterAddresses(t, "a", "b", "c", "other")
	dir := initCluster(t, addresses[:3]...)
	var all []*live
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, newMachine(t, filepath.Join(dir, name)))
	}
	for _, s := range all {
		s.untilNodes("a up, b up, c up")
	}
	at := func(i int) string {
		_, address, _ := strings.Cut(addresses[i], "=")
		return address
	}
	other := newMachine(t, filepath.Join(dir, "b"), "--listen-cluster", at(3), "--join", strings.Join([]string{at(0), at(2), at(3)}, ","))
	for _, s := range append(all, other) {
		eventually(t, "two servers of one name are told of", func() (none struct{}, err error) {
			answer := s.call("/", "list_nodes", `{}`)
			if !strings.Contains(gjson.Get(answer, "result.problem").Str, "two servers are the machine b") {
				err = errors.New(answer)
			}
			return none, err
		})
	}
	other.end()
	for _, s := range all {
		s.untilNodes("a up, b up, c up")
	}
	for _, s := range all {
		s.end()
	}
	if !strings.Contains(all[1].log.String(), "another server is this machine, too") {
		t.Errorf("the log of the first one: %s", all[1].log)
	}
}
