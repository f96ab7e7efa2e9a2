package logfile

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"

	"nexus.internal/bridge/limit"
)

// LimitedBytes is how many bytes a minute one limited principal writes to the log of
// limited principals (SPEC §7). At that rate it needs eight hours to displace what others
// wrote there.
const LimitedBytes = 64 << 10

// tiers are what Tiers adds to the name of its path, before the extension.
var tiers = []string{"", "-limited", "-excess"}

// Tiers is one log in three, each with files of its own: of principals that may do
// everything, of limited ones, and of what a limited one writes beyond its rate. So a
// limited principal displaces no line of the first, and by many lines none but of those
// that wrote too many as well. It is safe for concurrent use.
type Tiers struct {
	full, limited, excess *Log

	rate *limit.Rate // of each limited principal, in bytes
}

// OpenTiers opens the logs: at path, and beside it. See Open.
func OpenTiers(path string, o Options) (*Tiers, error) {
	t := &Tiers{rate: limit.NewRate(LimitedBytes)}
	for i, log := range []**Log{&t.full, &t.limited, &t.excess} {
		var err error
		if *log, err = Open(tier(path, tiers[i]), o); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// Full is the log of principals that may do everything.
func (t *Tiers) Full() *Log { return t.full }

// Limited is the log that takes n bytes more of a limited principal.
func (t *Tiers) Limited(principal string, n int) *Log {
	if t.rate.Take(principal, n) == 0 {
		return t.limited
	}
	return t.excess
}

// Close closes the logs. Later lines open their files again.
func (t *Tiers) Close() error {
	var errs []error
	for _, log := range []*Log{t.full, t.limited, t.excess} {
		if log != nil {
			errs = append(errs, log.Close())
		}
	}
	return errors.Join(errs...)
}

// TierFiles are all files that Tiers at path may have, the youngest of each log first.
func TierFiles(path string) []string {
	var files []string
	for _, t := range tiers {
		name := tier(path, t)
		files = append(files, name)
		for i := range Kept {
			files = append(files, name+"."+strconv.Itoa(i+1))
		}
	}
	return files
}

func tier(path, name string) string {
	ext := filepath.Ext(path)
	return strings.TrimSuffix(path, ext) + name + ext
}
