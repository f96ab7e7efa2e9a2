package config

import (
	"fmt"
	"net/netip"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// Tools says how agents use their tools.
type Tools struct {
	// TimeoutSeconds is how long a call of a tool may take, whatever time it names; nil leaves
	// it to the call.
	TimeoutSeconds *float64 `json:"timeout_s,omitzero" min:">0" max:"86400"`
	// FetchAddresses are what web_fetch may reach beside the public internet: addresses and
	// networks of them, as 10.1.0.0/16.
	FetchAddresses []string `json:"fetch_addresses,omitzero" wire:"default"`
	// CacheBytes is how much the home of an agent's programs, with their caches, may hold; nil
	// is 4 GiB.
	CacheBytes *uint64 `json:"cache_bytes,omitzero" min:"1048576"`
}

// maxFetchAddresses bounds that list.
const maxFetchAddresses = 256

// fetchAddresses reads the list. An error names its member.
func (t Tools) fetchAddresses() ([]netip.Prefix, error) {
	if len(t.FetchAddresses) > maxFetchAddresses {
		return nil, &strict.Error{Path: "tools.fetch_addresses", Problem: fmt.Sprintf("has more than %d entries", maxFetchAddresses)}
	}
	var all []netip.Prefix
	for i, text := range t.FetchAddresses {
		prefix, err := netip.ParsePrefix(text)
		if addr, failed := netip.ParseAddr(text); failed == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		if err != nil {
			return nil, &strict.Error{Path: fmt.Sprintf("tools.fetch_addresses[%d]", i), Problem: fmt.Sprintf("is %.64q, want an address or a network of them, as 10.1.0.0/16", text)}
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}

// minCacheBytes is the least that the home of programs may hold.
const minCacheBytes = 1 << 20

// maxToolSeconds bounds the time of a call: a day.
const maxToolSeconds = 86_400

// ToolTime is the time of that many seconds; 0 if no call may take so long or so little.
func ToolTime(seconds float64) time.Duration {
	if !(seconds > 0 && seconds <= maxToolSeconds) {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

func (t Tools) check() error {
	if t.TimeoutSeconds != nil && t.time() == 0 {
		return &strict.Error{Path: "tools.timeout_s", Problem: fmt.Sprintf("is not above 0 and at most %d", maxToolSeconds)}
	}
	if t.CacheBytes != nil && *t.CacheBytes < minCacheBytes {
		return &strict.Error{Path: "tools.cache_bytes", Problem: fmt.Sprintf("is %d, want at least %d", *t.CacheBytes, minCacheBytes)}
	}
	_, err := t.fetchAddresses()
	return err
}

func (t Tools) time() time.Duration { return ToolTime(protocol.Value(t.TimeoutSeconds)) }
