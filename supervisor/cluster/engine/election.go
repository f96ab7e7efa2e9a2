package engine

import (
	"time"
	_ "unsafe" // for go:linkname
)

// How long a machine hears nothing of the one that leads a stream until it asks the others to be elected: chance says when between the two. The server of NATS has 4 to 9 s,
// and no option for it. Nothing is claimed before that is over, so it is to be over when a machine counts as lost, after 5 s. It is not shorter, as one that
// leads and has nothing to say is silent for up to 2 s.
const electAfter, electBefore = 3 * time.Second, 5 * time.Second

// The server's own variables. The program is not linked without them, and they are read from the start of its first group on.
//
//go:linkname minElectionTimeout github.com/nats-io/nats-server/v2/server.minElectionTimeout
var minElectionTimeout time.Duration

//go:linkname maxElectionTimeout github.com/nats-io/nats-server/v2/server.maxElectionTimeout
var maxElectionTimeout time.Duration

// theirs are the server's own times.
var theirs = [2]time.Duration{minElectionTimeout, maxElectionTimeout}

func init() { minElectionTimeout, maxElectionTimeout = electAfter, electBefore }
